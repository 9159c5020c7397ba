// A worm on a canvas: plays frames of a run, or shows the one frame that Python pushes. Used by vpc/canvas.py through anywidget.
const RODS = 49, SEGMENTS = 48;
const GROUND = "#eef0ee", POST = "#8fa3ad", OUTLINE = "#6b6459", INK = "#222222";
const SAVE_EVERY = 200; // ms: the kernel need not hear of every frame that is drawn

const floats = (view) => new Float32Array(view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength));
const bytes = (view) => new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
const mix = (from, to, part) => from + part * (to - from);
const shade = (from, to, part) => `rgb(${from.map((value, k) => Math.round(mix(value, to[k], part))).join(",")})`;
const muscle_colours = Array.from({ length: 256 }, (_, k) => shade([222, 214, 198], [212, 112, 72], Math.min(1, k / 180)));
const voltage_colours = Array.from({ length: 256 }, (_, k) =>
  k < 128 ? shade([59, 76, 192], [250, 250, 250], k / 127) : shade([250, 250, 250], [180, 4, 38], (k - 128) / 127));

function render({ model, el }) {
  const HEIGHT = model.get("aspect"); // of the width
  const canvas = document.createElement("canvas"), bar = document.createElement("div");
  const button = document.createElement("button"), slider = document.createElement("input"), clock = document.createElement("span");
  slider.type = "range";
  slider.min = 0;
  slider.setAttribute("aria-label", "time");
  canvas.style.cssText = `width: 100%; aspect-ratio: ${1 / HEIGHT}; border-radius: 4px; display: block`;
  bar.style.cssText = "display: flex; gap: 10px; align-items: center; margin-top: 6px; font: 13px system-ui, sans-serif";
  button.style.cssText = "width: 70px; font: inherit";
  slider.style.cssText = "flex: 1";
  clock.style.cssText = "min-width: 90px; text-align: right; font-variant-numeric: tabular-nums";
  bar.append(button, slider, clock);
  el.append(canvas, bar);
  const pen = canvas.getContext("2d");

  let body, muscle, voltage, objects, frames, place = 0; // place: the time in frames, between two of them while playing
  function read() {
    body = floats(model.get("body"));
    muscle = bytes(model.get("muscle"));
    voltage = bytes(model.get("voltage"));
    objects = floats(model.get("objects"));
    frames = body.length / (3 * RODS);
    slider.max = Math.max(0, frames - 1);
    bar.style.display = frames > 1 ? "flex" : "none";
    place = Math.min(model.get("frame"), Math.max(0, frames - 1));
    draw();
  }

  function draw() {
    const wide = canvas.clientWidth || 640, dots = window.devicePixelRatio || 1;
    if (canvas.width !== Math.round(wide * dots)) {
      canvas.width = Math.round(wide * dots);
      canvas.height = Math.round(wide * HEIGHT * dots);
    }
    const tall = wide * HEIGHT;
    pen.setTransform(dots, 0, 0, dots, 0, 0);
    pen.clearRect(0, 0, wide, tall);
    pen.fillStyle = GROUND;
    pen.fillRect(0, 0, wide, tall);
    if (!frames) return;

    // The body between two frames: a run has fewer frames a second than the screen.
    const frame = Math.floor(place), next = Math.min(frame + 1, frames - 1), part = place - frame;
    const rod = (i, k) => mix(body[3 * (frame * RODS + i) + k], body[3 * (next * RODS + i) + k], part);
    const radius = model.get("radius"), scale = wide / model.get("view");
    const centre = [0, 1].map((k) => Array.from({ length: RODS }, (_, i) => rod(i, k)).reduce((a, b) => a + b) / RODS);
    const at = (x, y) => [wide / 2 + (x - centre[0]) * scale, tall / 2 - (y - centre[1]) * scale];
    // A point of the body: along it in rods, across it from ventral (-1) to dorsal (1).
    const point = (along, across) => {
      const i = Math.min(RODS - 2, Math.floor(along)), f = along - i;
      const angle = mix(rod(i, 2), rod(i + 1, 2), f), arm = across * mix(radius[i], radius[i + 1], f);
      return at(mix(rod(i, 0), rod(i + 1, 0), f) + arm * Math.cos(angle), mix(rod(i, 1), rod(i + 1, 1), f) + arm * Math.sin(angle));
    };
    const trace = (points) => {
      pen.beginPath();
      points.forEach(([x, y], k) => (k ? pen.lineTo(x, y) : pen.moveTo(x, y)));
      pen.closePath();
    };

    grid(wide, tall, scale, centre);
    pen.fillStyle = POST;
    for (let k = 0; k < objects.length; k += 3) {
      pen.beginPath();
      pen.arc(...at(objects[k], objects[k + 1]), objects[k + 2] * scale, 0, 2 * Math.PI);
      pen.fill();
    }
    const dorsal = [], ventral = [], middle = [];
    for (let i = 0; i < RODS; i++) {
      dorsal.push(point(i, 1));
      ventral.push(point(i, -1));
      middle.push(point(i, 0));
    }
    for (const [side, edge] of [[0, dorsal], [1, ventral]]) {
      for (let i = 0; i < SEGMENTS; i++) {
        const active = muscle.length ? muscle[(frame * 2 + side) * SEGMENTS + i] : 0;
        pen.fillStyle = pen.strokeStyle = muscle_colours[active];
        pen.lineWidth = 0.7; // closes the hairlines between neighbours
        trace([middle[i], middle[i + 1], edge[i + 1], edge[i]]);
        pen.fill();
        pen.stroke();
      }
    }
    pen.strokeStyle = OUTLINE;
    pen.lineWidth = 1;
    trace([...dorsal, ...ventral.reverse()]);
    pen.stroke();
    const position = model.get("position"), across = model.get("side");
    if (voltage.length) {
      for (let k = 0; k < position.length; k++) {
        pen.fillStyle = voltage_colours[voltage[frame * position.length + k]];
        pen.beginPath();
        pen.arc(...point(position[k] * SEGMENTS, across[k]), 2.6, 0, 2 * Math.PI);
        pen.fill();
        pen.stroke();
      }
    }
    pen.fillStyle = INK;
    pen.beginPath();
    pen.arc(...middle[0], 3, 0, 2 * Math.PI); // the head's tip
    pen.fill();
    scale_bar(tall, scale);
    slider.value = Math.round(place);
    clock.textContent = `${(place / model.get("fps")).toFixed(2)} s`;
  }

  // Faint lines fixed to the ground: without them a worm in the middle of the picture would not seem to move.
  function grid(wide, tall, scale, centre) {
    const step = 0.25 * scale;
    pen.strokeStyle = "#e0e4e1";
    pen.lineWidth = 1;
    pen.beginPath();
    for (let x = ((wide / 2 - centre[0] * scale) % step + step) % step; x < wide; x += step) pen.moveTo(x, 0), pen.lineTo(x, tall);
    for (let y = ((tall / 2 + centre[1] * scale) % step + step) % step; y < tall; y += step) pen.moveTo(0, y), pen.lineTo(wide, y);
    pen.stroke();
  }

  function scale_bar(tall, scale) {
    pen.fillRect(14, tall - 18, 0.2 * scale, 3);
    pen.font = "12px system-ui, sans-serif";
    pen.fillText("0.2 mm", 14, tall - 24);
  }

  let before = null, saved = 0, request = null;
  function tick(now) {
    request = null;
    if (!model.get("playing")) return;
    if (before !== null && frames > 1) {
      place += ((now - before) / 1000) * model.get("fps");
      if (place > frames - 1) place = 0;
      tell(now - saved > SAVE_EVERY);
      if (now - saved > SAVE_EVERY) saved = now;
      draw();
    }
    before = now;
    request = window.requestAnimationFrame(tick);
  }
  function tell(save) {
    model.set("frame", Math.floor(place));
    if (save) model.save_changes();
  }
  function turn() {
    button.textContent = model.get("playing") ? "pause" : "play";
    before = null;
    if (model.get("playing") && request === null) request = window.requestAnimationFrame(tick);
    if (!model.get("playing")) model.save_changes(); // where it stopped
  }
  function jump() {
    if (model.get("frame") === Math.floor(place)) return; // our own doing
    place = Math.max(0, Math.min(model.get("frame"), frames - 1));
    draw();
  }
  button.onclick = () => {
    model.set("playing", !model.get("playing"));
    model.save_changes();
  };
  slider.oninput = () => {
    place = Number(slider.value);
    tell(true);
    draw();
  };
  const listeners = { "change:frame": jump, "change:playing": turn };
  for (const name of ["body", "muscle", "voltage", "objects", "fps"]) listeners[`change:${name}`] = read;
  for (const [name, listener] of Object.entries(listeners)) model.on(name, listener);
  const resized = new ResizeObserver(draw);
  read();
  turn();
  resized.observe(canvas);
  return () => {
    for (const [name, listener] of Object.entries(listeners)) model.off(name, listener);
    if (request !== null) window.cancelAnimationFrame(request);
    resized.disconnect();
  };
}

export default { render };
