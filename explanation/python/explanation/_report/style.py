"""How the page looks."""

from weft._base import report

#: Colors by role, for light and dark backgrounds; those of the figures are among them.
LIGHT = report.LIGHT | {
    "graph": "#0072b2", "gap": "#d55e00", "rest": "#b8b2a6", "back": "#56b4e9", "added": "#e3f4e5",
    "removed": "#fbe6e3",
}  # fmt: skip
DARK = report.DARK | {
    "graph": "#62bdf0", "gap": "#ff8c42", "rest": "#6d675e", "back": "#2b7cb0", "added": "#1d3322",
    "removed": "#3d211d",
}  # fmt: skip

_RULES = """main{max-width:64rem}
h2{font-size:1.45rem;letter-spacing:-.01em;font-weight:650;margin:3rem 0 .2rem;overflow-wrap:anywhere}
h3{font-size:.8rem;letter-spacing:.09em;text-transform:uppercase;color:var(--quiet);font-weight:600;
  margin:2rem 0 .7rem}
.verdict.bad{background:var(--bad-back)}.verdict.good{background:var(--good-back)}
.verdict p{margin-top:.5rem;font-size:1.08rem;max-width:46rem}
.quiet{color:var(--quiet);font-size:.9rem}
.card{padding:1.1rem 1.3rem;overflow-wrap:anywhere}
.scroll{overflow-wrap:normal}
.action{display:grid;grid-template-columns:2.2rem minmax(0,1fr) auto;gap:.2rem 1rem}
.rank{font-size:1.3rem;font-weight:680;color:var(--quiet)}
.gain{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.gain strong{font-size:1.2rem;display:block}
.gain.sure strong{color:var(--bad)}
.tag{display:inline-block;border:1px solid var(--edge);border-radius:6px;padding:0 .45rem;font-size:.8rem;
  color:var(--quiet);margin-right:.35rem}
.change{font-weight:600;margin-bottom:.3rem}
.at{margin:.15rem 0}
.card pre{margin:.4rem 0 0}
pre.diff{margin:.7rem 0 0;padding:.7rem 0;background:var(--code);border-radius:8px;line-height:1.5;overflow-x:auto}
pre.diff span{display:block;padding:0 1rem;white-space:pre;min-width:max-content}
.plus{background:var(--added)}.minus{background:var(--removed)}.about{color:var(--quiet)}
th,td{padding:.45rem .9rem .45rem 0;vertical-align:top}
th{white-space:nowrap}
th.right,td.right{white-space:nowrap}
.bars{display:grid;grid-template-columns:max-content minmax(0,1fr) max-content;gap:.45rem .9rem;align-items:center;
  font-size:.92rem;font-variant-numeric:tabular-nums}
.bars svg{width:100%;height:1.5rem;display:block}
.bars .why{grid-column:2/4;color:var(--quiet);font-size:.86rem;margin:-.35rem 0 .35rem}
svg{overflow:visible}
.graph{fill:var(--graph)}.gap{fill:var(--gap)}.rest{fill:var(--rest)}.back{fill:var(--back)}
.range{stroke:var(--ink);stroke-width:1.5;vector-effect:non-scaling-stroke;fill:none}
.line{width:100%;height:5.2rem;display:block}
.key{gap:.2rem 1.3rem;margin-top:.5rem}
.key i{display:inline-block;width:.85rem;height:.85rem;border-radius:3px;margin-right:.4rem;vertical-align:-.08rem}
.scale{display:flex;justify-content:space-between;font-size:.8rem;color:var(--quiet);margin-top:.25rem}
.source{width:100%;font-size:.86rem;line-height:1.5}
.source td{border:0;padding:0 .7rem 0 0;white-space:pre}
.source td.number{color:var(--quiet);text-align:right;user-select:none}
.source td.cost{text-align:right;min-width:8.5rem;background-repeat:no-repeat}
.source tr.broken td{background-color:var(--bad-back)}
.source tr.broken td.cost{font-weight:650;color:var(--bad)}
.meter{display:inline-block;height:.6rem;background:var(--gap);border-radius:2px;margin-left:.5rem}
.scatter{width:100%;max-width:34rem;height:16rem;display:block}
.scatter text{font-size:12px;fill:var(--quiet)}
.axis{stroke:var(--edge);fill:none}
"""
_NARROW = """  .action{grid-template-columns:1.4rem minmax(0,1fr)}
  .gain{grid-column:2;grid-row:2;text-align:left;white-space:normal}
  .bars{grid-template-columns:max-content minmax(0,1fr)}.bars .value{grid-column:2}.bars .why{grid-column:1/3}"""

CSS = report.style(LIGHT, DARK, _RULES, ("36rem", _NARROW))
