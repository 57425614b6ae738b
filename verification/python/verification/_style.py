"""The page's style."""

from weft._base import report

#: Colors by role, for light and dark backgrounds. Lines of plots differ in dashes too, not in hue alone.
LIGHT = report.LIGHT | {"difference": "#d55e00", "defect": "#0072b2", "bound": "#8a857c", "field": "#edeae4"}
DARK = report.DARK | {"difference": "#ff8c42", "defect": "#62bdf0", "bound": "#98938a", "field": "#2b2925"}

_RULES = """main{max-width:58rem}
h2{font-size:.8rem;letter-spacing:.09em;text-transform:uppercase;color:var(--quiet);font-weight:600;
  margin:2.75rem 0 .8rem}
h3{font-size:1.05rem;font-weight:620}
.value{font-family:var(--fixed);font-size:.9em}
.path{overflow-wrap:anywhere}
pre{margin:.6rem 0 0;padding:.8rem 1rem;background:var(--code);border-radius:8px;line-height:1.5;
  white-space:pre-wrap;overflow-wrap:anywhere}
sup{font-size:.72em;line-height:0}
.verdict{display:flex;gap:1.1rem;align-items:flex-start}
.verdict.differ{background:var(--bad-back)}.verdict.agree{background:var(--good-back)}
.sign{flex:none;width:3rem;height:3rem;border-radius:50%;display:grid;place-items:center;color:var(--card);
  font-size:1.7rem;font-weight:700;line-height:1}
.differ .sign{background:var(--bad)}.agree .sign{background:var(--good)}
.verdict p{margin-top:.45rem;font-size:1.08rem;max-width:44rem;overflow-wrap:anywhere}
.pair{margin-top:1rem;color:var(--quiet);font-size:.92rem}
.card{padding:1.2rem 1.35rem}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(8.5rem,1fr));gap:1.1rem 1.5rem}
.facts dt,.sides dt{color:var(--quiet);font-size:.82rem}
.facts dd{font-size:1.12rem;font-weight:560;overflow-wrap:anywhere}
.facts+.facts{margin-top:1.1rem;padding-top:1.1rem;border-top:1px solid var(--edge)}
.facts .value{font-size:1.02rem}
.names{display:flex;flex-wrap:wrap;gap:.4rem;align-items:center;margin-bottom:.7rem}
.name{background:var(--bad-back);color:var(--bad);border-radius:6px;padding:.12rem .5rem;font-weight:600}
.whole{white-space:nowrap}
.scope,.more,.spot{color:var(--quiet);font-size:.9rem}
.change{margin-top:1rem;padding-top:1rem;border-top:1px solid var(--edge)}
.change.alone{margin-top:0;padding-top:0;border-top:0}
.change p,.card>p{max-width:46rem;overflow-wrap:anywhere}
.more{margin-top:1rem}
figcaption{display:flex;flex-wrap:wrap;gap:.2rem .9rem;align-items:baseline;margin-bottom:.2rem}
figcaption h3{overflow-wrap:anywhere;min-width:0}
.state{font-size:.88rem;font-weight:600}.state.differ{color:var(--bad)}.state.agree{color:var(--good)}
.key{gap:.1rem 1.2rem;margin-bottom:.7rem}
.key span{display:inline-flex;align-items:center;gap:.45rem}.key svg{width:30px;height:12px;flex:none}
.plot{display:grid;grid-template-columns:4rem minmax(0,1fr);font-size:.8rem;color:var(--quiet);
  font-variant-numeric:tabular-nums}
.plot>svg{grid-column:2;width:100%;height:15rem;display:block;border:1px solid var(--edge);border-width:0 0 1px 1px}
.mark,.xs{grid-column:2;position:relative;height:1.45rem}
.mark span{position:absolute;white-space:nowrap;color:var(--ink);font-weight:600}
.mark .after{margin-left:-.42em}.mark .before{margin-right:-.42em}
.axis{grid-column:1;grid-row:1;text-align:right;padding-right:.55rem;white-space:nowrap;direction:rtl}
.ys{grid-column:1;position:relative}
.ys span{position:absolute;right:.55rem;transform:translateY(-50%);white-space:nowrap;line-height:1.1}
.xs span{position:absolute;top:.25rem;transform:translateX(-50%)}
.unit{grid-column:2;text-align:center}
svg path{fill:none;vector-effect:non-scaling-stroke;stroke-linejoin:round}
.grid{stroke:var(--grid)}
.break{stroke:var(--edge);stroke-dasharray:1 4}
.first{stroke:var(--ink);stroke-width:1.5;stroke-dasharray:2 3}
svg .field{fill:var(--field)}
.bound{stroke:var(--bound);stroke-width:1.5;stroke-dasharray:6 4}
.difference{stroke:var(--difference);stroke-width:3}
.defect{stroke:var(--defect);stroke-width:1.6;stroke-dasharray:5 3}
.difference.dots{stroke-width:9;stroke-linecap:round}
.defect.dots{stroke-width:5;stroke-linecap:square;stroke-dasharray:none}
rect{fill:var(--ink);fill-opacity:0}rect:hover{fill-opacity:.07}
th,td{padding:.5rem .9rem .5rem 0;white-space:nowrap}
td.wide{white-space:normal;overflow-wrap:anywhere;min-width:8rem}
.sides{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,20rem),1fr));gap:1rem}
.sides .card{margin:0}.sides ul{list-style:none;margin-top:.7rem}.sides li{overflow-wrap:anywhere;margin-top:.25rem}
.note{color:var(--quiet);font-size:.9rem}
details>summary{cursor:pointer;color:var(--quiet);padding:.3rem 0}
details[open]>summary{margin-bottom:.8rem}
"""
_NARROW = """  .sign{width:2.3rem;height:2.3rem;font-size:1.3rem}.plot{grid-template-columns:3.6rem minmax(0,1fr)}
  .plot>svg{height:12rem}"""

CSS = report.style(LIGHT, DARK, _RULES, ("34rem", _NARROW))
