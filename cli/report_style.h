// The style sheet of report pages: light, dark, narrow and on paper.
#ifndef LEEWAY_CLI_REPORT_STYLE_H_
#define LEEWAY_CLI_REPORT_STYLE_H_

namespace leeway {

inline constexpr char kReportStyle[] = R"css(
:root {
  color-scheme: light dark;
  --ink: #1d2327; --soft: #5b666e; --page: #f6f7f8; --card: #ffffff; --rule: #dfe3e6;
  --grid: #dde1e4; --fine: #f0f2f3; --link: #005a8d;
  --harmless: #00735a; --uncertain: #8a5a00; --conflict: #b84700;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ink: #e6eaed; --soft: #a3adb5; --page: #14181b; --card: #1c2226; --rule: #343c42;
    --grid: #3a4349; --fine: #272e33; --link: #7cc4f2;
    --harmless: #3fc7a4; --uncertain: #f0b84a; --conflict: #ff8a4a;
  }
  .s0 { color: #56b4e9; } .s1 { color: #f08c3c; } .s2 { color: #2fc79b; } .s3 { color: #e3a0c5; }
  .s4 { color: #f2c14e; } .s5 { color: #a9dcff; } .s6 { color: #e6eaed; }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, "Segoe UI", "Helvetica Neue", Arial, sans-serif;
}
main { max-width: 900px; margin: 0 auto; padding: 28px 20px 48px; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 36px 0 10px; }
h3 { font-size: 1rem; margin: 0 0 4px; }
p { margin: 0 0 10px; }
a { color: var(--link); }
code, .hash { font-family: ui-monospace, "SFMono-Regular", Menlo, Consolas, monospace; font-size: .86em; }
.hash { overflow-wrap: anywhere; }
.soft, .note, figcaption { color: var(--soft); }
.card { background: var(--card); border: 1px solid var(--rule); border-radius: 8px; padding: 16px 18px; }
.verdict { border-left: 6px solid var(--soft); margin: 18px 0; }
.verdict p:last-child { margin-bottom: 0; }
.verdict .word { font-weight: 650; text-transform: uppercase; letter-spacing: .06em; font-size: .8rem; margin: 0 0 2px; }
.verdict .sentence { font-size: 1.12rem; line-height: 1.45; }
.harmless { border-left-color: var(--harmless); } .harmless .word, td.harmless { color: var(--harmless); }
.uncertain { border-left-color: var(--uncertain); } .uncertain .word, td.uncertain { color: var(--uncertain); }
.conflict { border-left-color: var(--conflict); } .conflict .word, td.conflict { color: var(--conflict); }
.state { border-left: 6px solid var(--conflict); margin: 18px 0; }
ul.warnings { margin: 8px 0 0; padding-left: 1.1em; font-size: .9rem; color: var(--soft); }
figure { margin: 0 0 18px; }
figcaption { font-size: .9rem; }
.scroll { overflow-x: auto; }
svg.chart { display: block; width: 100%; height: auto; }
.narrow { display: none; }
svg .tick, svg .note, svg .guide-label { fill: var(--soft); }
svg .axis-title, svg .title { fill: var(--ink); }
svg .grid { stroke: var(--grid); } svg .fine { stroke: var(--fine); }
svg .guide-label { stroke: var(--card); }
svg .axis, svg .guide { stroke: var(--soft); }
.note { font-size: .85rem; margin: 4px 0 0; }
.files { font-size: .85rem; margin: 6px 0 0; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; vertical-align: top; padding: 5px 12px 5px 0; border-bottom: 1px solid var(--rule); }
thead th { color: var(--soft); font-weight: 600; white-space: nowrap; }
tbody th { font-weight: 500; color: var(--soft); width: 11.5em; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
tr:last-child > * { border-bottom: 0; }
td.text { overflow-wrap: anywhere; }
summary { cursor: pointer; color: var(--soft); margin: 8px 0; }
@media (max-width: 560px) {
  main { padding: 18px 12px 32px; } h1 { font-size: 1.4rem; } .card { padding: 12px; }
  tbody th { width: auto; }
  .wide { display: none; } .narrow { display: block; }
  /* One cell below the other: nothing is to the right of the screen. */
  table.events thead { display: none; }
  table.events tr, table.events td { display: block; border: 0; white-space: normal; text-align: left; padding: 0; }
  table.events tr { border-bottom: 1px solid var(--rule); padding: 6px 0; }
  table.events td:first-child, table.events td:empty { display: none; }
}
@media print {
  :root {
    --ink: #000; --soft: #444; --page: #fff; --card: #fff; --rule: #ccc; --grid: #ddd; --fine: #f2f2f2;
    --link: #000; --harmless: #00735a; --uncertain: #8a5a00; --conflict: #b84700;
  }
  .s0 { color: #0072b2; } .s1 { color: #d55e00; } .s2 { color: #009e73; } .s3 { color: #cc79a7; }
  .s4 { color: #e69f00; } .s5 { color: #56b4e9; } .s6 { color: #000; }
  body { font-size: 11pt; } main { max-width: none; padding: 0; }
  .card { border: 0; border-radius: 0; padding: 0; } .verdict, .state { border-left: 4px solid; padding-left: 10px; }
  figure, tr { break-inside: avoid; } h2 { break-after: avoid; } .files { display: none; }
  .wide { display: block; } .narrow { display: none; } .scroll { overflow: visible; }
}
)css";

}  // namespace leeway

#endif  // LEEWAY_CLI_REPORT_STYLE_H_
