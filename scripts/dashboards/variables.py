"""By what is a dashboard's view narrowed? Variables that every dashboard has, so that links carry them along."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.models.dashboard import (
    DataSourceRef,
    VariableHide,
    VariableOption,
    VariableRefresh,
    VariableSort,
)

PROMETHEUS = DataSourceRef(type_val="prometheus", uid="${datasource}")


def all_variables() -> list[builders.QueryVariable | builders.CustomVariable | builders.DatasourceVariable]:
    """Return the variables, the wider ones first: those behind narrow by those before."""
    of_host = 'host_name=~"$host"'
    of_namespace = f'{of_host}, k8s_namespace_name=~"$namespace"'
    of_pod = f'{of_namespace}, k8s_pod_name=~"$pod"'
    processes = (
        f'group by (instance, process) (label_join(target_info{{{of_pod}, job=~"$job", process_pid!="", job!="otel-gpu"}}, '
        '"process", " ", "process_executable_name", "process_pid", "host_name"))'
    )
    return [
        builders.DatasourceVariable("datasource").label("Prometheus").type("prometheus"),
        _query("host", "Host", 'label_values(target_info{host_name!=""}, host_name)', "Hosts that an agent runs on."),
        _query(
            "namespace",
            "Namespace",
            f"label_values(target_info{{{of_host}}}, k8s_namespace_name)",
            "Kubernetes namespaces; without Kubernetes there are none, and All shows everything.",
        ),
        _query(
            "pod",
            "Pod",
            f"label_values(target_info{{{of_namespace}}}, k8s_pod_name)",
            "Kubernetes pods; without Kubernetes there are none, and All shows everything.",
        ),
        _query(
            "job",
            "Service",
            f'label_values(target_info{{{of_pod}, process_pid!="", job!="otel-gpu"}}, job)',
            "Observed programs by their service.name.",
        ),
        _query(
            "process",
            "Process",
            f"query_result({processes})",
            "Observed processes: executable, pid and host. Its value is the service.instance.id.",
            regex='/instance="(?<value>[^"]+)".*process="(?<text>[^"]+)"/',
        ),
        _query(
            "gpu",
            "GPU",
            f"label_values(hw_gpu_memory_limit_bytes{{{of_host}}}, hw_id)",
            "GPUs by their UUID, as nvidia-smi -L and DCGM have it.",
        ),
        builders.CustomVariable("quantile")
        .label("Quantile")
        .description("Which quantile the panels of durations and sizes show.")
        .values("0.5,0.9,0.95,0.99")
        .current(VariableOption(selected=True, text="0.95", value="0.95")),
    ]


def _query(name: str, title: str, query: str, description: str, regex: str = "") -> builders.QueryVariable:
    variable = (
        builders.QueryVariable(name)
        .label(title)
        .description(description)
        .datasource(PROMETHEUS)
        .query({"query": query, "refId": name})
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .hide(VariableHide.DONT_HIDE)
        .current(VariableOption(selected=True, text="All", value="$__all"))
    )
    return variable.regex(regex) if regex else variable
