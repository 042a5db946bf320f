{{- define "otel-gpu.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 63 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "otel-gpu.account" -}}
{{- .Values.serviceAccount.name | default (include "otel-gpu.name" .) }}
{{- end }}

{{- define "otel-gpu.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "otel-gpu.labels" -}}
{{ include "otel-gpu.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* What the agent is told: what the values above say, and over it `config`. */}}
{{- define "otel-gpu.config" -}}
{{- $receivers := dict "cuda" dict "nvml" dict "self" dict }}
{{- $processors := dict "kernel_names" dict }}
{{- $discovery := dict }}
{{- if .Values.profiles }}{{ $_ := set $receivers "profile" dict }}{{ end }}
{{- if .Values.traces }}{{ $_ := set $receivers "inference" dict }}{{ end }}
{{- if .Values.kubernetes.enabled }}
{{- $_ := set $receivers "kubernetes" dict }}
{{- $extract := dict "labels" .Values.kubernetes.labels "annotations" .Values.kubernetes.annotations }}
{{- $_ := set $processors "kubernetes" (dict "extract" $extract) }}
{{- $socket := ternary (printf "%s/kubelet.sock" .Values.podResources.path) "" .Values.podResources.enabled }}
{{- $_ := set $discovery "kubernetes" (dict "pod_resources" $socket) }}
{{- end }}
{{- $exporters := dict "otlp" (dict "endpoint" .Values.otlp.endpoint) }}
{{- if .Values.prometheus.enabled }}
{{- $_ := set $exporters "prometheus" (dict "endpoint" (printf "${env:POD_IP}:%d" (int .Values.prometheus.port))) }}
{{- end }}
{{- $made := dict "receivers" $receivers "processors" $processors "exporters" $exporters "discovery" $discovery }}
{{- if .Values.healthCheck.enabled }}
{{- $endpoint := printf "${env:POD_IP}:%d" (int .Values.healthCheck.port) }}
{{- $_ := set $made "extensions" (dict "health_check" (dict "endpoint" $endpoint)) }}
{{- $_ := set $made "service" (dict "extensions" (list "health_check")) }}
{{- end }}
{{- mergeOverwrite $made (deepCopy (.Values.config | default dict)) | toYaml }}
{{- end }}
