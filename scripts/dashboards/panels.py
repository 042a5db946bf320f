"""What can stand on a dashboard? Each kind of panel with what all of them need: a title, what it says, a unit, queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from grafana_foundation_sdk.builders import common, heatmap, stat, table, timeseries
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    BigValueGraphMode,
    GraphThresholdsStyleMode,
    LegendDisplayMode,
    LegendPlacement,
    SortOrder,
    StackingMode,
    TableCellHeight,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DataTransformerConfig,
    DynamicConfigValue,
    Threshold,
    ThresholdsMode,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from .variables import PROMETHEUS

GREEN, YELLOW, RED = "green", "yellow", "red"
Limits = Sequence[tuple[float, str]]
"""From which values on which colour; below the first one it is green."""


@dataclass(frozen=True)
class Query:
    """PromQL, and how its series are called."""

    expression: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    """A panel; `build` makes Grafana's of it."""

    title: str
    description: str
    unit: str
    queries: Sequence[Query]
    width: int = 12
    height: int = 8
    limits: Limits = ()
    low_is_bad: bool = False
    """Whether `limits` are those below which it is bad."""
    links: Sequence[tuple[str, str]] = ()
    """Titles and addresses for who clicks on a value."""

    def build(self) -> Any:
        """Return it as the SDK's builder."""
        raise NotImplementedError

    def _common(self, panel: Any) -> Any:
        made = (
            panel.title(self.title)
            .description(self.description)
            .datasource(PROMETHEUS)
            .unit(self.unit)
            .span(self.width)
            .height(self.height)
            .targets([self._target(query, chr(ord("A") + n)) for n, query in enumerate(self.queries)])
        )
        if self.limits:
            made = made.thresholds(self._thresholds())
        if self.links:
            made = made.data_links([builders.DashboardLink(title).url(url) for title, url in self.links])
        return made

    def _thresholds(self) -> builders.ThresholdsConfig:
        base = RED if self.low_is_bad else GREEN
        steps = [Threshold(value=None, color=base), *(Threshold(value=v, color=c) for v, c in self.limits)]
        return builders.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps)

    def _target(self, query: Query, ref: str) -> Dataquery:
        return Dataquery().ref_id(ref).datasource(PROMETHEUS).expr(query.expression).legend_format(query.legend)


@dataclass(frozen=True)
class Lines(Panel):
    """Values over time."""

    stacked: bool = False
    exemplars: bool = False
    """Whether the traces of single values are shown as dots."""
    highest: float | None = None

    def build(self) -> timeseries.Panel:
        made: timeseries.Panel = self._common(timeseries.Panel())
        made = (
            made.min(0)
            .fill_opacity(30 if self.stacked else 8)
            .legend(
                common.VizLegendOptions()
                .show_legend(True)
                .display_mode(LegendDisplayMode.TABLE)
                .placement(LegendPlacement.BOTTOM)
                .calcs(["mean", "max", "lastNotNull"])
            )
            .tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING))
        )
        if self.highest is not None:
            made = made.max(self.highest)
        if self.stacked:
            made = made.stacking(common.StackingConfig().mode(StackingMode.NORMAL))
        if self.limits:
            style = common.GraphThresholdsStyleConfig().mode(GraphThresholdsStyleMode.DASHED)
            made = made.thresholds_style(style)
        return made

    def _target(self, query: Query, ref: str) -> Dataquery:
        target = super()._target(query, ref).range()
        return target.exemplar(True) if self.exemplars else target


@dataclass(frozen=True)
class Number(Panel):
    """One value, or one for each of a few series, as it is now."""

    width: int = 4
    height: int = 4

    def build(self) -> stat.Panel:
        made: stat.Panel = self._common(stat.Panel())
        return (
            made.graph_mode(BigValueGraphMode.AREA)
            .color_mode(BigValueColorMode.VALUE)
            .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        )


@dataclass(frozen=True)
class Heat(Panel):
    """How often which values are over time."""

    def build(self) -> heatmap.Panel:
        made: heatmap.Panel = self._common(heatmap.Panel())
        return made.y_axis(heatmap.YAxisConfig().unit(self.unit)).exemplars_color("rgba(255,0,255,0.7)")

    def _target(self, query: Query, ref: str) -> Dataquery:
        return super()._target(query, ref).range().format(PromQueryFormat.HEATMAP).exemplar(True)


@dataclass(frozen=True)
class Column:
    """A column of a table: the query's letter, what it is called, and its unit."""

    ref: str
    title: str
    unit: str
    limits: Limits = ()


@dataclass(frozen=True)
class Rows(Panel):
    """A table: a row for each set of labels, a column for each query."""

    width: int = 24
    columns: Sequence[Column] = ()
    names: dict[str, str] = field(default_factory=dict)
    """Labels that are shown, and their titles."""

    def build(self) -> table.Panel:
        made: table.Panel = self._common(table.Panel())
        titles = {f"Value #{c.ref}": c.title for c in self.columns} | dict(self.names)
        hidden = dict.fromkeys(("Time", *(f"Time {n + 1}" for n in range(len(self.columns)))), True)
        made = made.transformations(
            [
                DataTransformerConfig(id_val="merge", options={}),
                DataTransformerConfig(
                    id_val="organize",
                    options={
                        "excludeByName": hidden,
                        "renameByName": titles,
                        "indexByName": {name: n for n, name in enumerate((*self.names, *titles))},
                    },
                ),
            ]
        ).cell_height(TableCellHeight.SM)
        for column in self.columns:
            properties = [DynamicConfigValue(id_val="unit", value=column.unit)]
            if column.limits:
                steps = [{"value": None, "color": GREEN}, *({"value": v, "color": c} for v, c in column.limits)]
                properties += [
                    DynamicConfigValue(id_val="thresholds", value={"mode": "absolute", "steps": steps}),
                    DynamicConfigValue(id_val="custom.cellOptions", value={"type": "color-text"}),
                ]
            made = made.override_by_name(column.title, properties)
        return made

    def _target(self, query: Query, ref: str) -> Dataquery:
        return super()._target(query, ref).instant().format(PromQueryFormat.TABLE)
