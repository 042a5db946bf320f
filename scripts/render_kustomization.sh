#!/usr/bin/env bash
# What does the Helm chart say by default? Printed for those who have no Helm, which may be named: render_kustomization.sh [HELM]
set -euo pipefail
cd "$(dirname "$0")/../deploy"
echo "# Rendered from ../../helm/otel-gpu by scripts/render_kustomization.sh; do not edit."
"${1:-helm}" template otel-gpu helm/otel-gpu --namespace otel-gpu --kube-version 1.36.3 | grep -v '^# Source: ' | sed 's/Helm$/kustomize/'
