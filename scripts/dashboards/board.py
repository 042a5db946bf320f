"""What have all dashboards alike? Variables, links to each other, and rows of panels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.models.dashboard import Dashboard, DashboardCursorSync, DashboardLinkType

from .panels import Panel
from .variables import PROMETHEUS, all_variables

TAG = "otel-gpu"
_DOCS = "docs/dashboards.md of otel-gpu says what each panel is for, and what to do."
_WITH = "${__url_time_range}&${datasource:queryparam}&${host:queryparam}"
TO_NODE = ("This host", f"/d/otel-gpu-node?{_WITH}&var-host=${{__field.labels.host_name}}")
TO_PROCESS = (
    "What this process launches",
    f"/d/otel-gpu-process?{_WITH}&var-host=${{__field.labels.host_name}}&var-job=${{__field.labels.job}}",
)
TO_PROFILES = (
    "Its profiles in Pyroscope",
    (
        "/explore?left=%7B%22datasource%22:%22pyroscope%22,%22queries%22:%5B%7B%22refId%22:%22A%22,%22labelSelector%22:"
        "%22%7Bservice_name%3D%5C%22${__field.labels.job}%5C%22%7D%22%7D%5D%7D"
    ),
)
"""By the label that a data source of Pyroscope has of the same resource."""


@dataclass(frozen=True)
class Row:
    """Panels below a title. A row that is `optional` begins closed: what it shows comes from elsewhere, or from few programs."""

    title: str
    panels: Sequence[Panel]
    optional: bool = False


@dataclass(frozen=True)
class Board:
    """A dashboard."""

    name: str
    title: str
    description: str
    rows: Sequence[Row]

    @property
    def file(self) -> str:
        """The name of its file."""
        return f"{self.name}.json"

    def build(self) -> Dashboard:
        """Return it as Grafana's."""
        made = (
            builders.Dashboard(f"otel-gpu / {self.title}")
            .uid(f"otel-gpu-{self.name}")
            .description(f"{self.description} {_DOCS}")
            .tags([TAG])
            .time("now-1h", "now")
            .refresh("30s")
            .timezone("browser")
            .tooltip(DashboardCursorSync.CROSSHAIR)
            .editable()
            .variables(all_variables())
            .link(
                builders.DashboardLink("otel-gpu")
                .type(DashboardLinkType.DASHBOARDS)
                .tags([TAG])
                .include_vars(True)
                .keep_time(True)
            )
            .annotation(
                builders.AnnotationQuery()
                .name("Alerts")
                .datasource(PROMETHEUS)
                .enable(True)
                .icon_color("red")
                .expr('ALERTS{alertstate="firing", severity="critical", alertname=~"(Gpu|OtelGpu|Nccl|Rdma).*"}')
            )
        )
        for row in self.rows:
            made_row = builders.Row(row.title).collapsed(row.optional)
            if row.optional:
                for panel in row.panels:
                    made_row = made_row.with_panel(panel.build())
                made = made.with_row(made_row)
                continue
            made = made.with_row(made_row)
            for panel in row.panels:
                made = made.with_panel(panel.build())
        return made.build()
