"use strict";
const root = document.documentElement;
document.getElementById("theme").addEventListener("click", () => {
  const dark = root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});
if (location.hash === "#dark" || location.hash === "#light") root.dataset.theme = location.hash.slice(1);

const dot = (n) => `<i class="swatch b${n}"></i>`;
const mbit = (v) => v.toFixed(1);
for (const figure of document.querySelectorAll(".figure[data-series]")) {
  const series = JSON.parse(document.getElementById(figure.dataset.series).textContent);
  const svg = figure.querySelector("svg"), cursor = svg.querySelector(".cursor"), tip = figure.querySelector(".tip");
  const [x0, x1] = series.px, [t0, t1] = series.time, last = series.t.length - 1;
  let at = 0;
  const show = () => {
    const t = series.t[at], x = x0 + ((t - t0) / (t1 - t0)) * (x1 - x0);
    cursor.setAttribute("d", cursor.dataset.way.replace("X", x.toFixed(1)));
    cursor.style.visibility = tip.style.visibility = "visible";
    let rows = "", sum = 0;
    series.names.forEach((name, n) => {
      const rate = series.rates[n][at];
      if (rate === null) return;
      sum += rate;
      rows += `<tr><td>${dot(n)}${name}<td>${mbit(rate)}<td>${mbit(series.wanted[n][at])}<td>${series.limits[series.limited[n][at]] || ""}</tr>`;
    });
    const queue = series.queue ? `<br>queue ${series.queue[at].toFixed(2)} ms, dropped ${series.dropped[at]} packets` : "";
    tip.innerHTML = `<b>${(t - series.zero).toFixed(2)} s</b><table><tr class="soft"><td>Mbit/s<td>got<td>share<td>limited by</tr>${rows}</table>sum ${mbit(sum)} Mbit/s${queue}`;
    const box = svg.getBoundingClientRect(), scale = box.width / svg.viewBox.baseVal.width;
    const left = x * scale + 14, room = figure.clientWidth + figure.scrollLeft;
    tip.style.left = `${left + tip.offsetWidth < room ? left : x * scale - tip.offsetWidth - 14}px`;
    tip.style.top = "44px";
  };
  const hide = () => { cursor.style.visibility = tip.style.visibility = "hidden"; };
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
    const t = t0 + ((x - x0) / (x1 - x0)) * (t1 - t0);
    at = Math.min(last, Math.max(0, series.t.findIndex((s) => s >= t)));
    if (t > series.t[last]) at = last;
    show();
  });
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("blur", hide);
  svg.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20 }[event.key];
    if (!by) return;
    event.preventDefault();
    at = Math.min(last, Math.max(0, at + by));
    show();
  });
}
