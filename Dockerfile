# syntax=docker/dockerfile:1
# otel-gpu as an image: docs/kubernetes.md says how it is run. Built for the machine that builds it.

FROM debian:bookworm-slim AS build
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# The versions that Debian has at the time: it keeps no older ones.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends \
        binutils clang-14 gcc libbpf-dev libbpf1 libc6-dev llvm-14 make \
        python3 python3-venv \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN python3 -m venv /build \
    && /build/bin/pip install --no-cache-dir build==1.3.0 \
    && /build/bin/python -m build --wheel --outdir /dist
RUN python3 -m venv /opt/otel-gpu \
    && /opt/otel-gpu/bin/pip install --no-cache-dir "$(echo /dist/*.whl)[prometheus]" \
    # An interpreter of its own, so that it alone has rights.
    && cp --remove-destination "$(readlink -f /usr/bin/python3)" /opt/otel-gpu/bin/python3 \
    && find /opt/otel-gpu -name __pycache__ -prune -exec rm -rf {} + \
    && /opt/otel-gpu/bin/python3 -m compileall -q /opt/otel-gpu/lib \
    && /opt/otel-gpu/bin/otel-gpu --version

FROM debian:bookworm-slim
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends libcap2-bin python3 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 65532 --home-dir /nonexistent --shell /usr/sbin/nologin otel-gpu \
    && install -d -o otel-gpu -g otel-gpu -m 0700 /var/cache/otel-gpu /var/lib/otel-gpu
COPY --from=build /opt/otel-gpu /opt/otel-gpu
# For engines that let programs gain rights; Kubernetes gives them to root instead (deploy/helm). The command takes up
# those of them that it is granted.
RUN setcap cap_bpf,cap_perfmon,cap_sys_ptrace,cap_dac_read_search,cap_checkpoint_restore=p /opt/otel-gpu/bin/python3
ENV PATH=/opt/otel-gpu/bin:$PATH XDG_CACHE_HOME=/var/cache PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
ENTRYPOINT ["otel-gpu"]
CMD ["run"]
