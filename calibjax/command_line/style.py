"""How the page of a report looks: light or dark, on screens of any width, and in print."""

STYLE = """\
:root {
  color-scheme: light dark;
  --text: #1c1e21; --muted: #5a6068; --line: #d5d9de; --page: #ffffff; --box: #f4f6f8;
  --accent: #1f5a94;
}
@media (prefers-color-scheme: dark) {
  :root {
    --text: #e6e8eb; --muted: #a5acb5; --line: #3b4148; --page: #15181b; --box: #1f2428;
    --accent: #8fc1f3;
  }
  /* Drawn in black on white; light on dark, all colours keep their hue. */
  figure img { filter: invert(0.9) hue-rotate(180deg); }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 76rem;
  background: var(--page); color: var(--text);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif;
}
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 0.5rem; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 0.5rem; }
h3 { font-size: 1rem; margin: 1.5rem 0 0.25rem; }
a { color: var(--accent); }
.lead { color: var(--muted); margin-top: 0; }
.made { color: var(--muted); font-size: 0.925rem; margin-top: -0.75rem; }
.top { display: grid; gap: 1.5rem 2rem; align-items: start;
  grid-template-columns: repeat(auto-fit, minmax(min(28rem, 100%), 1fr)); }
.top > .beside { display: grid; gap: 1.5rem; }
.advice { padding: 0.25rem 1rem; border-left: 0.3rem solid var(--line); margin-top: 1.5rem; }
.advice h2 { margin-top: 0.25rem; }
.findings { background: var(--box); border-left: 0.3rem solid var(--accent);
  padding: 0.75rem 1rem; }
.findings h2 { margin-top: 0; }
.findings p { margin: 0.5rem 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin-bottom: 1rem;
  font-variant-numeric: tabular-nums; }
th, td { padding: 0.3rem 0.75rem 0.3rem 0; text-align: left; vertical-align: top; }
thead th { border-bottom: 2px solid var(--line); color: var(--muted); font-size: 0.875rem;
  white-space: nowrap; }
tbody th { font-weight: 500; min-width: 11rem; width: 24rem; }
tbody tr { border-bottom: 1px solid var(--line); }
.number { text-align: right; white-space: nowrap; width: 12rem; }
.remark { color: var(--muted); font-size: 0.925rem; }
dt { font-weight: 600; margin-top: 0.6rem; }
dd { margin: 0 0 0 1rem; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(18rem, 100%), 1fr));
  gap: 1.5rem 2rem; align-items: start; margin-top: 1.5rem; }
figure { margin: 0; max-width: 36rem; }
figure img { display: block; width: 100%; height: auto; background: #ffffff;
  border: 1px solid var(--line); border-radius: 0.25rem; }
figcaption { color: var(--muted); font-size: 0.925rem; margin-top: 0.4rem; }
code, pre { font-family: ui-monospace, "Cascadia Code", Menlo, Consolas, monospace;
  font-size: 0.85rem; }
pre { background: var(--box); padding: 0.75rem 1rem; white-space: pre-wrap;
  overflow-wrap: anywhere; }
dd code { overflow-wrap: anywhere; }
summary { cursor: pointer; color: var(--accent); margin: 0.75rem 0; }
td { overflow-wrap: anywhere; }
@media (min-width: 40.01rem) { .facts th { width: 15rem; } }
@media (max-width: 40rem) {
  thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  table, tbody, tr, tbody th, td { display: block; width: 100%; padding-right: 0; }
  tbody tr { padding: 0.4rem 0; }
  tbody th, td { padding-block: 0.1rem; }
  tbody th { font-weight: 600; }
  td.number { width: 100%; display: flex; justify-content: space-between; gap: 1rem; }
  td.number::before { content: attr(data-label); color: var(--muted); }
  td:empty { display: none; }
}
@media print { body { max-width: none; } figure, tr { break-inside: avoid; } }
"""
