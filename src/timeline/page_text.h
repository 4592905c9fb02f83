// The style and the script of the page of a summary. Nothing in them names another file.
#pragma once

#include <string_view>

namespace rueda::timeline {

// Colours of shares stand out from the page by 3:1 at least, and text by 4.5:1; one set for dark pages. Paper
// is always light.
inline constexpr std::string_view kPageStyle = R"(
:root { color-scheme: light dark; --text: #1b1f24; --page: #ffffff; --faint: #5b6470; --line: #d8dde3;
  --s0: #7d97b3; --s1: #b7791f; --s2: #c0364a; --s3: #1f5fa8; --s4: #7a5195;
  --s5: #4b7f3a; --s6: #7f7a2e; --s7: #b8688a; --s8: #757b85 }
@media screen and (prefers-color-scheme: dark) { :root {
  --text: #e6e9ed; --page: #14171a; --faint: #9aa4af; --line: #343a41;
  --s0: #5d7894; --s1: #d9a62e; --s2: #e8707e; --s3: #62a3ea; --s4: #a583c0;
  --s5: #7fb36c; --s6: #b3b878; --s7: #c9899c; --s8: #868c95 } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--page); max-width: 64rem;
  margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2.2rem }
.faint, .said, .ends { color: var(--faint) }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; overflow-wrap: normal }
.wide { overflow-x: auto }
th, td { text-align: right; padding: .25rem .5rem; border-bottom: 1px solid var(--line); white-space: nowrap }
th { vertical-align: bottom; white-space: normal }
th:first-child, td:first-child, .left { text-align: left }
td.words { white-space: normal; min-width: 13rem } td.host { white-space: normal; min-width: 7rem }
td.what { white-space: normal; min-width: 6rem }
bdi { white-space: pre-wrap; overflow-wrap: anywhere }
.key span { display: inline-block; margin-right: 1.1rem }
.key i { display: inline-block; width: .8em; height: .8em; margin-right: .35em; border-radius: 2px;
  print-color-adjust: exact; -webkit-print-color-adjust: exact }
.c0 { fill: var(--s0); background: var(--s0) } .c1 { fill: var(--s1); background: var(--s1) }
.c2 { fill: var(--s2); background: var(--s2) } .c3 { fill: var(--s3); background: var(--s3) }
.c4 { fill: var(--s4); background: var(--s4) } .c5 { fill: var(--s5); background: var(--s5) }
.c6 { fill: var(--s6); background: var(--s6) } .c7 { fill: var(--s7); background: var(--s7) }
.c8 { fill: var(--s8); background: var(--s8) }
svg { display: block } .chart { margin-bottom: 1.2rem }
#steps { width: 100%; height: 15rem; overflow: visible }
.ends { display: flex; justify-content: space-between; font-size: .8em; margin: .2rem 0 }
.said { margin: 0; padding: .3rem 0; min-height: 3em;
  position: sticky; top: 0; background: var(--page) }
.cut { fill: var(--page) }
.frame { fill: transparent; vector-effect: non-scaling-stroke }
.now .frame { fill: var(--text); fill-opacity: .12 }
svg.bar { width: 10rem; height: 1.5rem } .bar { cursor: default; scroll-margin: 5rem 1rem }
.bar:focus { outline: none }
.bar:focus .frame { stroke: var(--text); stroke-width: 3px }
.wide:focus-visible { outline: 2px solid var(--text); outline-offset: 2px }
@media (max-width: 40rem) { .said { min-height: 4.5em } th, td { padding: .25rem .3rem } }
@media print {
  :root { color-scheme: light }
  body { max-width: none; margin: 0; padding: 0; font-size: 11px }
  #steps { height: 9rem } svg.bar { width: 7rem }
  .wide { overflow: visible } .said { display: none }
  th, td { white-space: normal; padding: .15rem .3rem } td.words { min-width: 8rem }
  tr, #steps { break-inside: avoid } h2 { break-after: avoid }
}
)";

// A bar says above its chart what it shows when it is pointed at or reached by keyboard. One bar of a chart
// can be reached with Tab, and the others from there with the arrow keys, Home and End.
inline constexpr std::string_view kPageScript = R"(
for (const chart of document.querySelectorAll(".chart")) {
  const bars = [...chart.querySelectorAll(".bar")];
  const said = chart.querySelector(".said");
  let now = null;
  const say = (bar) => {
    if (now) now.classList.remove("now");
    now = bar;
    now.classList.add("now");
    said.textContent = bar.getAttribute("aria-label");
  };
  let reached = bars[0];
  for (const bar of bars) {
    bar.addEventListener("mouseenter", () => say(bar));
    bar.addEventListener("focus", () => {
      reached.setAttribute("tabindex", -1);
      reached = bar;
      reached.setAttribute("tabindex", 0);
      say(bar);
    });
  }
  chart.addEventListener("keydown", (event) => {
    const at = bars.indexOf(document.activeElement);
    if (at < 0 || event.ctrlKey || event.altKey || event.metaKey) return;
    const to = { ArrowLeft: at - 1, ArrowUp: at - 1, ArrowRight: at + 1, ArrowDown: at + 1, Home: 0,
      End: bars.length - 1, Enter: at, " ": at }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    if (to === at) say(bars[at]);
    else if (bars[to]) bars[to].focus();
  });
}
// A table that fits needs no stop for the keys that scroll it.
const stops = () => {
  for (const box of document.querySelectorAll(".wide"))
    box.tabIndex = box.scrollWidth > box.clientWidth ? 0 : -1;
};
addEventListener("resize", stops);
stops();
)";

}  // namespace rueda::timeline
