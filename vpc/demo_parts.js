// Parts of the page of `vpc demo`: data as vpc/demo.py packs them into #data, charts over time, and worms.
"use strict";
const D = JSON.parse(document.getElementById("data").textContent), B = D.branch;
const INK = "#222222", BLUE = "#2b6cb0", GREY = "#8a8a8a", ORANGE = "#d95f02", RED = "#c0392b", FAINT = "#e4e4e4";
const FONT = "12px system-ui, sans-serif", RODS = D.radius.length;
const $ = (id) => document.getElementById(id);
const faded = (colour, part) => colour + Math.round(255 * part).toString(16).padStart(2, "0");
const fixed = (value, digits) => (value == null || Number.isNaN(value) ? "–" : value.toFixed(digits).replace("-", "−"));

// Numbers (item, series, ...) that Python packed as 16-bit integers; `series` gives one row as floats.
function unpack(packed) {
  const text = atob(packed.values), bytes = Uint8Array.from(text, (letter) => letter.charCodeAt(0));
  const whole = new Int16Array(bytes.buffer), [, rows, ...rest] = packed.shape, length = rest.reduce((a, b) => a * b, 1);
  const series = (item, row) => {
    const from = (item * rows + row) * length, out = new Float64Array(length);
    for (let k = 0; k < length; k++) {
      const value = whole[from + k];
      out[k] = value === -32768 ? NaN : packed.low[item] + packed.step[item] * (value + 32767);
    }
    return out;
  };
  return { series, items: packed.shape[0], rows };
}
const average = (values) => values.reduce((a, b) => a + b, 0) / values.length;
const mix = (a, b, part) => a + part * (b - a);
const COOLWARM = [[59, 76, 192], [124, 159, 249], [232, 232, 232], [244, 152, 122], [180, 4, 38]];
const tone = (value) => Math.asinh(2 * value) / Math.asinh(2 * D.limit); // mV: nearly linear below 0.5, logarithmic beyond
function colour(value) { // blue below, red above the neuron's own mean
  const x = 2 * Math.max(-1, Math.min(1, tone(value))) + 2, i = Math.min(3, Math.floor(x));
  return COOLWARM[i].map((c, k) => Math.round(mix(c, COOLWARM[i + 1][k], x - i)));
}

// Where a time lies between the frames of a list of times: [frame, part of the way to the next].
function place(times, t) {
  let i = 0;
  while (i < times.length - 2 && times[i + 1] <= t) i++;
  return [i, Math.max(0, Math.min(1, (t - times[i]) / (times[i + 1] - times[i])))];
}
const nearest = (times, t) => { const [i, part] = place(times, t); return part < 0.5 ? i : i + 1; };

function ready(canvas, tall) { // fit a canvas to its place on the page; its pen works in CSS pixels
  const wide = canvas.clientWidth, dots = window.devicePixelRatio || 1;
  const size = [Math.round(wide * dots), Math.round(tall * dots)];
  if (canvas.width !== size[0] || canvas.height !== size[1]) [canvas.width, canvas.height] = size;
  canvas.style.height = `${tall}px`;
  const pen = canvas.getContext("2d");
  pen.setTransform(dots, 0, 0, dots, 0, 0);
  pen.clearRect(0, 0, wide, tall);
  pen.font = FONT;
  return [pen, wide];
}

function ticks(low, high, most) {
  const rough = (high - low) / most, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough), out = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) out.push(k * step);
  return [out, Math.max(0, -Math.floor(Math.log10(step) + 1e-9))];
}

let now = 0;
const END = D.time[D.time.length - 1], charts = [], views = [];

// A picture over time: `options.paint` draws once, and each tick only the cursor moves.
class Chart {
  constructor(canvas, options) {
    Object.assign(this, { canvas, left: 62, top: 24, times: D.time, tall: 230, ...options });
    this.base = document.createElement("canvas");
    const go = (event) => {
      const x = event.clientX - canvas.getBoundingClientRect().left;
      const [first, last] = [this.times[0], this.times[this.times.length - 1]];
      seek(Math.max(first, Math.min(last, first + ((x - this.left) / (this.wide - this.left - 12)) * (last - first))));
    };
    canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture(event.pointerId); go(event); this.click?.(event); });
    canvas.addEventListener("pointermove", (event) => { if (event.buttons) go(event); this.hover?.(event); });
    charts.push(this);
  }
  paint() {
    if (!this.canvas.clientWidth) return; // hidden
    const [pen, wide] = ready(this.canvas, this.tall);
    Object.assign(this, { pen, wide, bottom: this.tall - 38, right: wide - 12 });
    const [first, last] = [this.times[0], this.times[this.times.length - 1]], [low, high] = this.range();
    this.x = (t) => this.left + ((t - first) / (last - first)) * (this.right - this.left);
    this.y = (value) => this.bottom - ((value - low) / (high - low)) * (this.bottom - this.top);
    pen.textAlign = "center";
    pen.textBaseline = "top";
    const [along, places] = ticks(first, last, Math.max(3, (this.right - this.left) / 80));
    for (const t of along) {
      this.rule(this.x(t), this.top, this.x(t), this.bottom, FAINT);
      pen.fillStyle = "#555555";
      pen.fillText(t.toFixed(places), this.x(t), this.bottom + 5);
    }
    pen.fillText("time (s)", (this.left + this.right) / 2, this.bottom + 21);
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    if (!this.bare) {
      const [up, digits] = ticks(low, high, this.tall / 42);
      for (const value of up) {
        this.rule(this.left, this.y(value), this.right, this.y(value), FAINT);
        pen.fillText(fixed(value, digits), this.left - 6, this.y(value));
      }
    }
    pen.save();
    pen.translate(12, (this.top + this.bottom) / 2);
    pen.rotate(-Math.PI / 2);
    pen.textAlign = "center";
    pen.fillText(this.label, 0, 0);
    pen.restore();
    pen.save();
    pen.beginPath();
    pen.rect(this.left, this.top, this.right - this.left, this.bottom - this.top);
    pen.clip();
    this.draw();
    pen.restore();
    pen.textAlign = "left";
    pen.textBaseline = "middle";
    pen.fillStyle = INK;
    pen.font = `600 ${FONT}`;
    pen.fillText(this.title(), this.left, 11);
    this.after?.();
    [this.base.width, this.base.height] = [this.canvas.width, this.canvas.height];
    this.base.getContext("2d").drawImage(this.canvas, 0, 0);
  }
  move() {
    if (!this.x || !this.canvas.clientWidth) return;
    const [pen] = ready(this.canvas, this.tall);
    pen.drawImage(this.base, 0, 0, this.wide, this.tall);
    if (now >= this.times[0] - 1e-9) this.rule(this.x(now), this.top, this.x(now), this.bottom, INK, 1.2);
  }
  rule(x1, y1, x2, y2, stroke, width = 1) {
    Object.assign(this.pen, { strokeStyle: stroke, lineWidth: width });
    this.pen.setLineDash([]);
    this.pen.beginPath();
    this.pen.moveTo(x1, y1);
    this.pen.lineTo(x2, y2);
    this.pen.stroke();
  }
  line(values, stroke, width = 1.5, dash = []) {
    const pen = this.pen;
    Object.assign(pen, { strokeStyle: stroke, lineWidth: width, lineJoin: "round" });
    pen.setLineDash(dash);
    pen.beginPath();
    let down = false;
    values.forEach((value, k) => {
      if (Number.isNaN(value)) return void (down = false);
      pen[down ? "lineTo" : "moveTo"](this.x(this.times[k]), this.y(value));
      down = true;
    });
    pen.stroke();
    pen.setLineDash([]);
  }
  band(low, high, fill) {
    const pen = this.pen, there = [...low.keys()].filter((k) => !Number.isNaN(low[k]));
    pen.fillStyle = fill;
    pen.beginPath();
    there.forEach((k, n) => pen[n ? "lineTo" : "moveTo"](this.x(this.times[k]), this.y(low[k])));
    there.reverse().forEach((k) => pen.lineTo(this.x(this.times[k]), this.y(high[k])));
    pen.fill();
  }
}

function limits(rows, least, zero = false) { // of an axis that holds some rows and is at least so wide
  let low = zero ? 0 : Infinity, high = zero ? 0 : -Infinity;
  for (const row of rows) for (const value of row) if (!Number.isNaN(value)) [low, high] = [Math.min(low, value), Math.max(high, value)];
  const margin = Math.max(0.06 * (high - low), (least - (high - low)) / 2);
  return [low - margin, high + margin];
}

// Worms. A body is its rods' places; the dorsal side is to the left of the way from head to tail.
function bodies_of(packed) {
  const { series, rows } = unpack(packed), all = Array.from({ length: rows }, (_, k) => series(0, k));
  return (worm, frame, part = 0) => {
    const from = 2 * RODS * frame, values = all[worm], last = values.length / (2 * RODS) - 1, next = 2 * RODS * Math.min(frame + 1, last);
    return Array.from({ length: RODS }, (_, i) => [0, 1].map((c) => mix(values[from + 2 * i + c], values[next + 2 * i + c], part)));
  };
}
const centre_of = (body) => [0, 1].map((k) => average(body.map((rod) => rod[k])));

class View {
  constructor(canvas, options) {
    Object.assign(this, { canvas, ...options });
    views.push(this);
  }
  start(centre) {
    const tall = Math.round(Math.max(0.36, Math.min(0.7, this.span[1] / this.span[0])) * this.canvas.clientWidth), [pen, wide] = ready(this.canvas, tall);
    const scale = Math.min(wide / this.span[0], tall / this.span[1]);
    Object.assign(this, { pen, wide, tall, scale });
    this.at = ([x, y]) => [wide / 2 + (x - centre[0]) * scale, tall / 2 - (y - centre[1]) * scale];
    pen.fillStyle = "#f4f5f3";
    pen.fillRect(0, 0, wide, tall);
    pen.strokeStyle = "#e3e6e3";
    pen.lineWidth = 1;
    pen.beginPath();
    const step = 0.25 * scale, [x0, y0] = this.at([0, 0]);
    for (let x = ((x0 % step) + step) % step; x < wide; x += step) pen.moveTo(x, 0), pen.lineTo(x, tall);
    for (let y = ((y0 % step) + step) % step; y < tall; y += step) pen.moveTo(0, y), pen.lineTo(wide, y);
    pen.stroke();
    pen.fillStyle = INK;
    pen.fillRect(12, tall - 14, 0.2 * scale, 3);
    pen.fillText("0.2 mm", 12, tall - 20);
  }
  point(body, along, across) {
    const i = Math.min(RODS - 2, Math.floor(along)), part = along - i;
    const [a, b] = [body[Math.max(0, i - 1)], body[Math.min(RODS - 1, i + 2)]], length = Math.hypot(b[0] - a[0], b[1] - a[1]) || 1;
    const arm = (across * mix(D.radius[i], D.radius[i + 1], part)) / length;
    return this.at([mix(body[i][0], body[i + 1][0], part) - arm * (b[1] - a[1]), mix(body[i][1], body[i + 1][1], part) + arm * (b[0] - a[0])]);
  }
  worm(body, { fill, line, width = 1, dash = [], head = false }) {
    const pen = this.pen;
    pen.beginPath();
    for (let i = 0; i < RODS; i++) pen[i ? "lineTo" : "moveTo"](...this.point(body, i, 1));
    for (let i = RODS - 1; i >= 0; i--) pen.lineTo(...this.point(body, i, -1));
    pen.closePath();
    if (fill) (pen.fillStyle = fill), pen.fill();
    Object.assign(pen, { strokeStyle: line, lineWidth: width, lineJoin: "round" });
    pen.setLineDash(dash);
    pen.stroke();
    pen.setLineDash([]);
    if (!head) return;
    pen.fillStyle = line;
    pen.beginPath();
    pen.arc(...this.at(body[0]), 3.5, 0, 2 * Math.PI);
    pen.fill();
  }
  neurons(body, values) {
    const pen = this.pen;
    Object.assign(pen, { strokeStyle: "#555555", lineWidth: 0.6 });
    D.position.forEach((position, k) => {
      pen.fillStyle = `rgb(${colour(values(k))})`;
      pen.beginPath();
      pen.arc(...this.point(body, position * (RODS - 1), D.side[k]), 2.7, 0, 2 * Math.PI);
      pen.fill();
      pen.stroke();
    });
  }
}
// How wide and tall a window that follows a centre must be to hold some worms at all times.
function span_of(frames, worms, centre, body) {
  const away = [0, 0];
  for (let k = 0; k < frames; k++)
    for (const worm of worms) for (const rod of body(worm, k)) [0, 1].forEach((c) => (away[c] = Math.max(away[c], Math.abs(rod[c] - centre(k)[c]))));
  return away.map((half) => 2 * half + 0.12);
}
