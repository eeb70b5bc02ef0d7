// What a file of grafana/dashboards may hold, by Grafana's own types. The test puts each file behind
// `const dashboard: Checked = …` and runs tsc: a field that Grafana does not know, or a value outside an enum, fails.
import type { Dashboard, FieldConfig, FieldConfigSource, Panel, RowPanel, AnnotationQuery } from '@grafana/schema';
import type * as BarChart from '@grafana/schema/dist/esm/raw/composable/barchart/panelcfg/x/BarChartPanelCfg_types.gen';
import type * as Heatmap from '@grafana/schema/dist/esm/raw/composable/heatmap/panelcfg/x/HeatmapPanelCfg_types.gen';
import type * as Stat from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
import type * as Table from '@grafana/schema/dist/esm/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen';
import type * as TimeSeries from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';

// JSON has strings where TypeScript has enums.
type Plain<T> = T extends string
  ? `${T}`
  : T extends readonly (infer U)[]
    ? Plain<U>[]
    : T extends object
      ? { [K in keyof T]: Plain<T[K]> }
      : T;

// Panel's own type knows nothing of a panel's options; the plugins' types do.
type Of<Type extends string, Options, Custom> = Omit<Panel, 'type' | 'options' | 'fieldConfig'> & {
  type: Type;
  options: Options;
  fieldConfig: Omit<FieldConfigSource, 'defaults'> & {
    defaults: Omit<FieldConfig, 'custom'> & { custom?: Partial<Custom> };
  };
};

type Known =
  | Of<'barchart', BarChart.Options, BarChart.FieldConfig>
  | Of<'heatmap', Heatmap.Options, Heatmap.FieldConfig>
  | Of<'stat', Stat.Options, Record<string, never>>
  | Of<'table', Omit<Table.Options, 'frameIndex'>, Table.FieldConfig>
  | Of<'timeseries', TimeSeries.Options, TimeSeries.FieldConfig>;

type Row = Omit<RowPanel, 'panels'> & { panels: Known[] };

// The query of an annotation stands in it, in the data source's own words.
type Annotation = AnnotationQuery & Record<'expr' | 'step' | 'titleFormat' | 'textFormat' | 'tagKeys', string>;

export type Checked = Plain<
  Omit<Dashboard, 'panels' | 'annotations'> & { panels: (Known | Row)[]; annotations: { list: Annotation[] } }
>;
