// Panels of curves, bands and maps over one axis, with a cursor. Used by vpc/scope.py through anywidget; Python says what to draw.
const LEFT = 62, RIGHT = 128, GAP = 12, FOOT = 34, INK = "#222222", FAINT = "#e4e4e0", GREY = "#777777", FONT = "11px system-ui, sans-serif";
const mix = (from, to, part) => from.map((value, k) => Math.round(value + part * (to[k] - value)));
const COLD = [59, 76, 192], WHITE = [250, 250, 250], WARM = [180, 4, 38];
const COLOURS = Array.from({ length: 256 }, (_, k) => (k < 128 ? mix(COLD, WHITE, k / 127) : mix(WHITE, WARM, (k - 128) / 127)));

function ticks(low, high, most) {
  const rough = (high - low) / most, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * power).find((k) => k >= rough * 0.999);
  const out = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) out.push(k * step);
  return [out, Math.max(0, -Math.floor(Math.log10(step) + 1e-9))];
}

function render({ model, el }) {
  const canvas = document.createElement("canvas"), save = document.createElement("a"), pen = canvas.getContext("2d");
  el.style.position = "relative";
  canvas.style.cssText = "width: 100%; display: block; cursor: crosshair; background: white";
  canvas.className = "vpc-scope";
  save.textContent = "PNG";
  save.title = "save this picture";
  save.style.cssText = `position: absolute; right: 6px; bottom: 4px; cursor: pointer; color: ${GREY}; font: ${FONT}`;
  el.append(canvas, save);
  let spec, data, maps;

  function read() {
    spec = model.get("spec");
    const view = model.get("data");
    data = new Float32Array(view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength));
    maps = (spec.panels || []).map((panel) => panel.map && picture(panel.map));
    draw();
    canvas.dataset.version = spec.version; // what is seen is of this run
  }
  const numbers = ([first, length]) => data.subarray(first, first + length);

  function picture({ values, rows, columns, limit }) {
    const image = document.createElement("canvas"), cells = numbers(values);
    image.width = columns;
    image.height = rows;
    const brush = image.getContext("2d"), pixels = brush.createImageData(columns, rows);
    for (let k = 0; k < rows * columns; k++) {
      const part = Math.min(1, Math.max(0, (cells[k] / limit + 1) / 2));
      pixels.data.set([...COLOURS[Math.round(255 * part)], 255], 4 * k);
    }
    brush.putImageData(pixels, 0, 0);
    return image;
  }

  function draw() {
    save.style.display = canvas.style.display = (spec.panels || []).length ? "block" : "none";
    if (!(spec.panels || []).length) return;
    const wide = canvas.clientWidth || 640, dots = window.devicePixelRatio || 1;
    const tall = spec.panels.reduce((sum, panel) => sum + panel.height + GAP, FOOT + 4);
    if (canvas.width !== Math.round(wide * dots) || canvas.height !== Math.round(tall * dots)) {
      canvas.width = Math.round(wide * dots);
      canvas.height = Math.round(tall * dots);
      canvas.style.height = `${tall}px`;
    }
    pen.setTransform(dots, 0, 0, dots, 0, 0);
    pen.fillStyle = "white";
    pen.fillRect(0, 0, wide, tall);
    pen.font = FONT;
    const [low, high] = spec.x.range, across = wide - LEFT - RIGHT, x = (value) => LEFT + ((value - low) / (high - low)) * across;
    const cursor = spec.x.cursor ? spec.x.start + model.get("frame") / model.get("fps") : null;
    const [marks, digits] = ticks(low, high, Math.max(3, across / 90));
    let top = 4;
    spec.panels.forEach((panel, k) => {
      pen.strokeStyle = FAINT;
      pen.lineWidth = 1;
      for (const mark of marks) line([[x(mark), top], [x(mark), top + panel.height]]);
      (panel.map ? map : curves)(panel, top, x, across, cursor, maps[k]);
      pen.strokeStyle = "#bbbbbb";
      pen.lineWidth = 1;
      pen.strokeRect(LEFT, top, across, panel.height);
      pen.save();
      pen.translate(12, top + panel.height / 2);
      pen.rotate(-Math.PI / 2);
      write(panel.label, 0, 0, "center");
      pen.restore();
      top += panel.height + GAP;
    });
    for (const mark of marks) write(mark.toFixed(digits), x(mark), top + 2, "center");
    write(spec.x.label, LEFT + across / 2, top + 18, "center");
    pen.lineWidth = 1;
    for (const [value, colour] of [...(spec.x.marks || []).map((mark) => [mark, GREY]), ...(cursor === null ? [] : [[cursor, INK]])]) {
      pen.strokeStyle = colour;
      pen.setLineDash(colour === GREY ? [3, 3] : []);
      line([[x(value), 4], [x(value), top - GAP]]);
    }
    pen.setLineDash([]);
  }

  function curves(panel, top, x, across, cursor) {
    const [low, high] = panel.range, y = (value) => top + panel.height * (1 - (value - low) / (high - low));
    const [marks, digits] = ticks(low, high, Math.max(2, panel.height / 32));
    for (const mark of marks) {
      pen.strokeStyle = FAINT;
      line([[LEFT, y(mark)], [LEFT + across, y(mark)]]);
      write(mark.toFixed(digits), LEFT - 5, y(mark), "right");
    }
    pen.save();
    pen.beginPath();
    pen.rect(LEFT, top, across, panel.height);
    pen.clip();
    const entries = [];
    for (const series of panel.series) {
      const xs = numbers(series.x), ys = numbers(series.y);
      pen.strokeStyle = pen.fillStyle = series.colour;
      pen.globalAlpha = series.alpha;
      pen.lineWidth = series.width;
      pen.setLineDash(series.dash);
      if (series.high) band(xs, ys, numbers(series.high), x, y);
      else if (series.dots) for (let k = 0; k < xs.length; k++) dot(x(xs[k]), y(ys[k]));
      else curve(xs, ys, x, y);
      if (series.name) entries.push([series, at(xs, ys, cursor)]);
    }
    pen.restore();
    pen.globalAlpha = 1;
    pen.setLineDash([]);
    const step = Math.min(15, (panel.height - 4) / Math.max(1, entries.length));
    entries.forEach(([series, value], k) => {
      const row = top + 8 + k * step;
      pen.strokeStyle = series.colour;
      pen.lineWidth = 2;
      pen.setLineDash(series.dash);
      line([[LEFT + across + 8, row], [LEFT + across + 22, row]]);
      pen.setLineDash([]);
      write(series.name + (value === null ? "" : `  ${value.toFixed(Math.abs(value) < 10 ? 2 : 1)}`), LEFT + across + 27, row, "left");
    });
  }

  function map(panel, top, x, across, cursor, image) {
    const [from, to] = panel.map.span;
    pen.imageSmoothingEnabled = false;
    pen.drawImage(image, x(from), top, x(to) - x(from), panel.height);
    pen.strokeStyle = GREY;
    for (const [name, first, last] of panel.map.groups) {
      const y = (row) => top + (row / panel.map.rows) * panel.height;
      if (first) line([[LEFT, y(first)], [LEFT + across, y(first)]]);
      if (last - first > 15) write(name, LEFT - 5, y((first + last) / 2), "right");
    }
    const left = LEFT + across + 10, tall = Math.min(110, panel.height - 20);
    for (let k = 0; k < tall; k++) {
      pen.fillStyle = `rgb(${COLOURS[255 - Math.round((255 * k) / tall)].join(",")})`;
      pen.fillRect(left, top + 10 + k, 10, 1.5);
    }
    const limit = panel.map.limit, digits = limit < 1 ? 2 : 1;
    write(`+${limit.toFixed(digits)}`, left + 15, top + 12, "left");
    write(`-${limit.toFixed(digits)}`, left + 15, top + 8 + tall, "left");
    write(panel.map.unit, left + 15, top + 10 + tall / 2, "left");
  }

  function at(xs, ys, cursor) { // the value at the cursor, if there is one
    if (cursor === null || cursor < xs[0] - 1e-6 || cursor > xs[xs.length - 1] + 1e-6) return null;
    let k = 0;
    while (k + 1 < xs.length && Math.abs(xs[k + 1] - cursor) <= Math.abs(xs[k] - cursor)) k++;
    return Number.isFinite(ys[k]) ? ys[k] : null;
  }
  function line(points) {
    pen.beginPath();
    points.forEach(([a, b], k) => (k ? pen.lineTo(a, b) : pen.moveTo(a, b)));
    pen.stroke();
  }
  function curve(xs, ys, x, y) {
    pen.beginPath();
    let drawing = false; // what is not a number is a gap
    for (let k = 0; k < xs.length; k++) {
      if (Number.isFinite(ys[k])) pen[drawing ? "lineTo" : "moveTo"](x(xs[k]), y(ys[k]));
      drawing = Number.isFinite(ys[k]);
    }
    pen.stroke();
  }
  function band(xs, low, high, x, y) {
    for (let k = 0; k < xs.length; k++) {
      if (!Number.isFinite(low[k])) continue;
      const first = k;
      while (k + 1 < xs.length && Number.isFinite(low[k + 1])) k++;
      pen.beginPath();
      for (let j = first; j <= k; j++) pen.lineTo(x(xs[j]), y(low[j]));
      for (let j = k; j >= first; j--) pen.lineTo(x(xs[j]), y(high[j]));
      pen.fill();
    }
  }
  function dot(a, b) {
    pen.beginPath();
    pen.arc(a, b, 2.6, 0, 2 * Math.PI);
    pen.fill();
  }
  function write(text, a, b, align) {
    pen.fillStyle = INK;
    pen.textAlign = align;
    pen.textBaseline = "middle";
    pen.fillText(text, a, b);
  }

  function point(event) { // go to the time that was clicked on
    if (!spec.x || !spec.x.cursor || (event.type === "pointermove" && !(event.buttons & 1))) return;
    const box = canvas.getBoundingClientRect(), [low, high] = spec.x.range;
    const time = low + ((event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT)) * (high - low);
    model.set("frame", Math.max(0, Math.min(spec.x.frames - 1, Math.round((time - spec.x.start) * model.get("fps")))));
    model.save_changes();
  }
  canvas.addEventListener("pointerdown", point);
  canvas.addEventListener("pointermove", point);
  save.addEventListener("click", () => {
    save.download = `${spec.name || "rig"}.png`;
    save.href = canvas.toDataURL("image/png");
  });
  const resized = new ResizeObserver(draw);
  resized.observe(canvas);
  const changes = { "change:spec": read, "change:frame": draw };
  for (const [event, act] of Object.entries(changes)) model.on(event, act);
  read();
  return () => {
    resized.disconnect();
    for (const [event, act] of Object.entries(changes)) model.off(event, act);
  };
}

export default { render };
