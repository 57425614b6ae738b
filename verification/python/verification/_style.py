"""The page's style."""

#: Colors by role, for light and dark backgrounds. Roles differ in lightness and dashes too, not in hue alone.
LIGHT = {
    "page": "#faf9f6", "card": "#ffffff", "ink": "#1d1c1a", "quiet": "#65615a", "edge": "#e2ded6", "code": "#f3f1ec",
    "grid": "#e9e6df", "differ": "#a83800", "differ-back": "#fdeee3", "agree": "#00578f", "agree-back": "#e5f1fa",
    "difference": "#d55e00", "defect": "#0072b2", "bound": "#8a857c", "field": "#edeae4",
}  # fmt: skip
DARK = {
    "page": "#161513", "card": "#1f1e1b", "ink": "#eceae4", "quiet": "#a39e94", "edge": "#36332e", "code": "#292723",
    "grid": "#302e29", "differ": "#ffa06b", "differ-back": "#38231a", "agree": "#7cc4f5", "agree-back": "#162c3d",
    "difference": "#ff8c42", "defect": "#62bdf0", "bound": "#98938a", "field": "#2b2925",
}  # fmt: skip


def _variables(colors: dict[str, str]) -> str:
    return ";".join(f"--{name}:{color}" for name, color in colors.items())


CSS = (
    f"""
:root{{color-scheme:light dark;{_variables(LIGHT)}}}
@media (prefers-color-scheme:dark){{:root{{{_variables(DARK)}}}}}
"""
    + """
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,
  "Helvetica Neue",Arial,sans-serif;-webkit-text-size-adjust:100%}
main{max-width:58rem;margin:0 auto;padding:2.5rem 1.25rem 4rem}
h1,h2,h3,p,dl,dd,ul,figure{margin:0;padding:0}
h1{font-size:2.1rem;line-height:1.15;letter-spacing:-.02em;font-weight:680}
h2{font-size:.8rem;letter-spacing:.09em;text-transform:uppercase;color:var(--quiet);font-weight:600;
  margin:2.75rem 0 .8rem}
h3{font-size:1.05rem;font-weight:620}
code,pre,.value{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:.9em}
code,.path{overflow-wrap:anywhere}
pre{margin:.6rem 0 0;padding:.8rem 1rem;background:var(--code);border-radius:8px;line-height:1.5;
  white-space:pre-wrap;overflow-wrap:anywhere}
sup{font-size:.72em;line-height:0}
.verdict{display:flex;gap:1.1rem;align-items:flex-start;padding:1.5rem 1.6rem;border-radius:14px}
.verdict.differ{background:var(--differ-back)}.verdict.agree{background:var(--agree-back)}
.sign{flex:none;width:3rem;height:3rem;border-radius:50%;display:grid;place-items:center;color:var(--card);
  font-size:1.7rem;font-weight:700;line-height:1}
.differ .sign{background:var(--differ)}.agree .sign{background:var(--agree)}
.verdict p{margin-top:.45rem;font-size:1.08rem;max-width:44rem;overflow-wrap:anywhere}
.pair{margin-top:1rem;color:var(--quiet);font-size:.92rem}
.card{background:var(--card);border:1px solid var(--edge);border-radius:12px;padding:1.2rem 1.35rem;margin:0 0 1rem;
  min-width:0}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(8.5rem,1fr));gap:1.1rem 1.5rem}
.facts dt,.sides dt{color:var(--quiet);font-size:.82rem}
.facts dd{font-size:1.12rem;font-weight:560;overflow-wrap:anywhere}
.facts+.facts{margin-top:1.1rem;padding-top:1.1rem;border-top:1px solid var(--edge)}
.facts .value{font-size:1.02rem}
.names{display:flex;flex-wrap:wrap;gap:.4rem;align-items:center;margin-bottom:.7rem}
.name{background:var(--differ-back);color:var(--differ);border-radius:6px;padding:.12rem .5rem;font-weight:600}
.whole{white-space:nowrap}
.scope,.more,.spot{color:var(--quiet);font-size:.9rem}
.change{margin-top:1rem;padding-top:1rem;border-top:1px solid var(--edge)}
.change.alone{margin-top:0;padding-top:0;border-top:0}
.change p,.card>p{max-width:46rem;overflow-wrap:anywhere}
.more{margin-top:1rem}
figcaption{display:flex;flex-wrap:wrap;gap:.2rem .9rem;align-items:baseline;margin-bottom:.2rem}
figcaption h3{overflow-wrap:anywhere;min-width:0}
.state{font-size:.88rem;font-weight:600}.state.differ{color:var(--differ)}.state.agree{color:var(--agree)}
.key{display:flex;flex-wrap:wrap;gap:.1rem 1.2rem;font-size:.86rem;color:var(--quiet);margin-bottom:.7rem}
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
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.92rem;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:.5rem .9rem .5rem 0;border-bottom:1px solid var(--edge);white-space:nowrap}
td.wide{white-space:normal;overflow-wrap:anywhere;min-width:8rem}
tr:last-child td{border-bottom:0}
th{color:var(--quiet);font-weight:500;font-size:.82rem}
th.right,td.right{text-align:right}
.sides{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,20rem),1fr));gap:1rem}
.sides .card{margin:0}.sides ul{list-style:none;margin-top:.7rem}.sides li{overflow-wrap:anywhere;margin-top:.25rem}
.note{color:var(--quiet);font-size:.9rem}
details>summary{cursor:pointer;color:var(--quiet);padding:.3rem 0}
details[open]>summary{margin-bottom:.8rem}
footer{margin-top:2.5rem;color:var(--quiet);font-size:.86rem}
@media (max-width:34rem){main{padding:1rem .8rem 3rem}h1{font-size:1.6rem}.verdict,.card{padding:1rem}
  .sign{width:2.3rem;height:2.3rem;font-size:1.3rem}.plot{grid-template-columns:3.6rem minmax(0,1fr)}
  .plot>svg{height:12rem}}
@media print{.card,.verdict{break-inside:avoid}}
"""
)
