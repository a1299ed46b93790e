"use strict";

const SVG = "http://www.w3.org/2000/svg";

function shape(name, parent, className) {
  const made = document.createElementNS(SVG, name);
  if (className) made.setAttribute("class", className);
  return parent.appendChild(made);
}

function move(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
}

/* Light or dark theme: the system's setting until the button is pressed. */
function themes() {
  const button = document.getElementById("theme"), root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const label = () => { button.textContent = dark() ? "Light" : "Dark"; button.ariaLabel = `${button.textContent} theme`; };
  button.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; label(); });
  system.addEventListener("change", label);
  button.hidden = false;
  label();
}

/* Cursor over the charts of a figure. The legend shows the values under it, otherwise the last ones. */
function cursor(figure) {
  const curves = JSON.parse(figure.querySelector("script").textContent);
  const at = figure.querySelector(".at"), values = [...figure.querySelectorAll(".key b")];
  const rest = { at: at.textContent, values: values.map((value) => value.textContent) };

  for (const plot of figure.querySelectorAll("svg.plot")) {
    const across = [...plot.classList].find((name) => name.startsWith("by-")).slice(3);
    const group = shape("g", plot, "cursor"), line = shape("line", group);
    const dots = curves.map((curve) => { const dot = shape("circle", group, curve.css_class); dot.setAttribute("r", 4); return dot; });
    const stops = [...new Set(curves.flatMap((curve) => curve.x[across]))].filter((x) => x !== null).sort((a, b) => a - b);
    const [, , width, height] = plot.getAttribute("viewBox").split(" ").map(Number);
    let stop = stops.length - 1;
    group.setAttribute("display", "none");

    const nearest = (places, x) => {
      let best = -1;
      places.forEach((place, i) => { if (place !== null && (best < 0 || Math.abs(place - x) < Math.abs(places[best] - x))) best = i; });
      return best;
    };
    const show = (to) => {
      stop = Math.min(stops.length - 1, Math.max(0, to));
      const x = stops[stop], told = [];
      let place = "";
      curves.forEach((curve, c) => {
        const i = nearest(curve.x[across], x);
        dots[c].setAttribute("display", i < 0 ? "none" : "inline");
        if (i < 0) return;
        move(dots[c], { cx: curve.x[across][i], cy: curve.y[i] });
        values[c].textContent = curve.text[i];
        told.push(`${curve.name} ${curve.text[i]}`);
        if (curve.x[across][i] === x) place = curve.at[i];
      });
      move(line, { x1: x, x2: x, y1: 8, y2: height - 34 });
      at.textContent = place;
      group.setAttribute("display", "inline");
      move(plot, { "aria-valuenow": stop, "aria-valuetext": `${place}: ${told.join(", ")}` });
    };
    const leave = () => {
      if (document.activeElement === plot && plot.matches(":focus-visible")) return;
      stop = stops.length - 1;
      group.setAttribute("display", "none");
      at.textContent = rest.at;
      values.forEach((value, i) => { value.textContent = rest.values[i]; });
    };
    const keys = { ArrowLeft: () => stop - 1, ArrowRight: () => stop + 1, ArrowDown: () => stop - 1, ArrowUp: () => stop + 1,
      PageDown: () => stop - 10, PageUp: () => stop + 10, Home: () => 0, End: () => stops.length - 1 };

    move(plot, { tabindex: 0, role: "slider", "aria-valuemin": 0, "aria-valuemax": stops.length - 1, "aria-valuenow": stop,
      "aria-valuetext": `${rest.at}: ${curves.map((curve) => `${curve.name} ${curve.text.at(-1)}`).join(", ")}` });
    plot.addEventListener("pointermove", (event) => {
      const box = plot.getBoundingClientRect();
      show(nearest(stops, ((event.clientX - box.left) / box.width) * width));
    });
    plot.addEventListener("pointerleave", leave);
    plot.addEventListener("focus", () => { if (plot.matches(":focus-visible")) show(stop); });
    plot.addEventListener("blur", leave);
    plot.addEventListener("keydown", (event) => {
      if (!(event.key in keys) || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      show(keys[event.key]());
    });
  }
}

/* Map of images: pointer or arrow keys select a point, Enter pins it. */
function images(box) {
  const data = JSON.parse(box.parentElement.querySelector("script").textContent);
  const plot = box.querySelector("svg"), card = box.querySelector(".card"), said = document.getElementById("map-said");
  const [tile, label, file] = card.children;
  const ring = shape("circle", plot, "ring");
  const hidden = new Set();
  let current = -1, pinned = false;
  move(ring, { r: 8, display: "none" });
  move(box, { tabindex: 0, role: "application", "aria-label": plot.getAttribute("aria-label"), "aria-describedby": "map-help" });
  plot.setAttribute("aria-hidden", "true");

  const shown = () => data.here.filter((i) => !hidden.has(data.group[i]));
  const closest = (x, y, within, allowed = () => true) => {
    let best = -1, least = within * within;
    for (const i of shown()) {
      const dx = data.x[i] - x, dy = data.y[i] - y, far = dx * dx + dy * dy;
      if (far < least && allowed(dx, dy)) { best = i; least = far; }
    }
    return best;
  };
  const share = (i, count) => (count > 1 ? (100 * i) / (count - 1) : 0);
  const forget = () => { current = -1; pinned = false; card.hidden = true; ring.setAttribute("display", "none"); };
  const show = (i, aloud) => {
    current = i;
    const row = Math.floor(i / data.columns), column = i % data.columns;
    move(ring, { cx: data.x[i], cy: data.y[i], display: "inline" });
    tile.style.backgroundPosition = `${share(column, data.columns)}% ${share(row, data.rows)}%`;
    label.textContent = data.label[i];
    file.textContent = data.name[i];
    card.hidden = false;
    card.classList.toggle("pinned", pinned);
    const scale = plot.clientWidth / data.width, x = data.x[i] * scale, y = data.y[i] * scale;
    const left = x + 16 + card.offsetWidth < box.clientWidth ? x + 16 : x - 16 - card.offsetWidth;
    card.style.left = `${Math.min(box.clientWidth - card.offsetWidth, Math.max(0, left))}px`;
    card.style.top = `${Math.max(0, Math.min(box.clientHeight - card.offsetHeight, y - card.offsetHeight / 2))}px`;
    if (aloud) said.textContent = `${data.label[i]}, ${data.name[i]}${pinned ? ", pinned" : ""}`;
  };
  const pin = (i, aloud) => { pinned = i !== current || !pinned; show(i, aloud); };
  const under = (event, within) => {
    const area = plot.getBoundingClientRect(), scale = data.width / area.width;
    return closest((event.clientX - area.left) * scale, (event.clientY - area.top) * scale, within * scale);
  };

  plot.addEventListener("pointermove", (event) => {
    if (pinned) return;
    const i = under(event, 18);
    if (i >= 0) show(i); else forget();
  });
  plot.addEventListener("pointerleave", () => { if (!pinned && document.activeElement !== box) forget(); });
  plot.addEventListener("click", (event) => { const i = under(event, 18); if (i >= 0) pin(i); else forget(); });

  const ways = { ArrowLeft: (dx, dy) => dx < 0 && Math.abs(dy) <= -dx, ArrowRight: (dx, dy) => dx > 0 && Math.abs(dy) <= dx,
    ArrowUp: (dx, dy) => dy < 0 && Math.abs(dx) <= -dy, ArrowDown: (dx, dy) => dy > 0 && Math.abs(dx) <= dy };
  const begin = () => closest(data.width / 2, data.height / 2, Infinity);
  box.addEventListener("focus", () => { if (current < 0 && box.matches(":focus-visible") && begin() >= 0) show(begin(), true); });
  box.addEventListener("blur", () => { if (!pinned) forget(); });
  box.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") { forget(); said.textContent = ""; return; }
    const start = current < 0 ? begin() : current;
    if (start < 0 || !(event.key in ways || event.key === "Enter" || event.key === " ")) return;
    event.preventDefault();
    if (!(event.key in ways)) { pin(start, true); return; }
    const next = current < 0 ? start : closest(data.x[start], data.y[start], Infinity, ways[event.key]);
    if (next >= 0) { pinned = false; show(next, true); }
  });

  const legend = box.parentElement.querySelector(".legend"), buttons = [...legend.querySelectorAll("[data-group]")];
  const filter = (button, on) => {
    button.ariaPressed = String(on);
    if (on) hidden.delete(+button.dataset.group); else hidden.add(+button.dataset.group);
    plot.querySelector(`[data-group="${button.dataset.group}"]`).setAttribute("display", on ? "inline" : "none");
    if (current >= 0 && hidden.has(data.group[current])) forget();
  };
  legend.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.dataset.all) buttons.forEach((one) => filter(one, button.dataset.all === "all"));
    else filter(button, button.ariaPressed !== "true");
  });
}

themes();
document.querySelectorAll("figure.chart").forEach(cursor);
document.querySelectorAll(".map").forEach(images);
