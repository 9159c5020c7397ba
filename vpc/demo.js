// The page of `vpc demo`: every picture on one clock.
const voltage = unpack(D.voltage), light = unpack(D.fluorescence), change = unpack(B.change), current = unpack(B.current);
const TRUE = 0, MEAN = 1, Q05 = 2, Q25 = 3, Q75 = 4, Q95 = 5, BLIND = 6, BLIND05 = 7, BLIND95 = 8; // rows of voltage
const true_volts = D.names.map((_, i) => voltage.series(i, TRUE)), mean_volts = D.names.map((_, i) => voltage.series(i, MEAN));
const from_mean = (all) => all.map((values) => { const own = average(values); return values.map((value) => value - own); });
const true_change = from_mean(true_volts), mean_change = from_mean(mean_volts);


// One neuron: its voltage, and what was seen of it.
let chosen = 0, seen = -1;
const rows = (...which) => which.map((row) => voltage.series(chosen, row));
new Chart($("voltage"), {
  label: "voltage (mV)",
  title: () => `${D.names[chosen]}: voltage`,
  range: () => limits(rows(TRUE, Q05, Q95, BLIND05, BLIND95), 0.2),
  draw() {
    const [truth, mean, q05, q25, q75, q95, blind, low, high] = rows(TRUE, MEAN, Q05, Q25, Q75, Q95, BLIND, BLIND05, BLIND95);
    this.band(low, high, faded(GREY, 0.25));
    this.line(blind, GREY, 1.2, [4, 3]);
    this.band(q05, q95, faded(BLUE, 0.25));
    this.band(q25, q75, faded(BLUE, 0.4));
    this.line(mean, BLUE, 1.6);
    this.line(truth, INK, 1.6);
  },
});
new Chart($("fluorescence"), {
  label: "fluorescence",
  title: () => `${D.names[chosen]}: fluorescence, seen and predicted`,
  range: () => {
    const all = [0, 1, 4].map((row) => light.series(Math.max(0, seen), row)), noise = D.sigma[Math.max(0, seen)];
    return limits([...all, all[0].map((value) => value - noise), all[0].map((value) => value + noise)], 0.02);
  },
  draw() {
    if (seen < 0) return;
    const [dots, q05, q25, q75, q95] = [0, 1, 2, 3, 4].map((row) => light.series(seen, row));
    this.band(q05, q95, faded(BLUE, 0.25));
    this.band(q25, q75, faded(BLUE, 0.4));
    dots.forEach((value, k) => {
      const x = this.x(this.times[k]);
      this.rule(x, this.y(value - D.sigma[seen]), x, this.y(value + D.sigma[seen]), faded(ORANGE, 0.3));
      this.pen.fillStyle = ORANGE;
      this.pen.beginPath();
      this.pen.arc(x, this.y(value), 2.2, 0, 2 * Math.PI);
      this.pen.fill();
    });
  },
});

const pick = document.createElement("select"), buttons = new Map();
function choose(name) {
  chosen = D.names.indexOf(name);
  seen = D.observed.indexOf(name);
  pick.value = name;
  for (const [key, button] of buttons) {
    button.classList.toggle("chosen", key === name);
    button.setAttribute("aria-pressed", key === name);
  }
  const [r, nrmse, coverage] = D.figures[chosen], said = (pair, digits) => `${fixed(pair[0], digits)} (${fixed(pair[1], digits)})`;
  $("about").textContent = `${name}, ${D.types[chosen]}, ${seen < 0 ? "not recorded" : "recorded"}: r = ${said(r, 3)}, ` +
    `nRMSE = ${said(nrmse, 3)}, in the 90 % band ${said(coverage, 2)}; in brackets, unconditioned.`;
  $("pair").classList.toggle("alone", seen < 0);
  repaint(charts.filter((chart) => ["voltage", "fluorescence"].includes(chart.canvas.id)));
}
for (const name of D.shown) {
  const button = document.createElement("button"), there = D.observed.includes(name);
  button.textContent = `${there ? "●" : "○"} ${name}`;
  button.title = there ? "recorded" : "not recorded";
  button.onclick = () => choose(name);
  buttons.set(name, button);
  $("buttons").append(button);
}
pick.setAttribute("aria-label", "any neuron");
for (const group of ["observed", "unobserved motor", "other"]) {
  const part = document.createElement("optgroup");
  part.label = group === "observed" ? "recorded" : group === "other" ? "other, not recorded" : "motor, not recorded";
  for (const name of D.names.filter((_, i) => D.groups[i] === group).sort((a, b) => a.localeCompare(b, "en", { numeric: true })))
    part.append(new Option(name, name));
  pick.append(part);
}
pick.onchange = () => choose(pick.value);
$("buttons").append(pick, "● recorded, ○ not recorded");
const key = (...entries) => entries.map(([style, text]) => `<span><i style="${style}"></i>${text}</span>`).join(" ");
const stroke = (colour, kind = "solid") => `height:0;vertical-align:.25em;border-top:2px ${kind} ${colour}`;
$("legend").innerHTML = key([stroke(INK), "truth"], [stroke(BLUE), "imputed mean"], [`background:${faded(BLUE, 0.55)}`, "50 % band"],
  [`background:${faded(BLUE, 0.25)}`, "90 % band"], [stroke(GREY, "dashed"), "unconditioned mean"],
  [`background:${faded(GREY, 0.25)}`, "its 90 % band"], [`background:${ORANGE};width:.6em;height:.6em;border-radius:50%`, "seen, ± assumed noise"]);
const marks = [...[1, 5].filter((value) => value < 0.7 * D.limit), D.limit], swatch = (value) => `<span style="margin:0;text-align:center;` +
  `padding:.1em .5em;background:rgb(${colour(value)});color:${Math.abs(tone(value)) > 0.75 ? "#fff" : INK}">${fixed(value, D.limit < 1 ? 2 : 0)}</span>`;
$("scale").innerHTML = "Voltage from the neuron's own mean (mV): " +
  [...marks.map((value) => -value).reverse(), 0, ...marks].map(swatch).join("");

// Maps of all neurons.
const kinds = D.types.map((type, i) => [type, i]).filter(([type, i]) => i === 0 || D.types[i - 1] !== type);
for (const [id, name, all] of [["map_true", "true", true_change], ["map_imputed", "imputed mean", mean_change]]) {
  const picture = document.createElement("canvas"), pen = picture.getContext("2d");
  [picture.width, picture.height] = [D.time.length, D.names.length];
  const image = pen.createImageData(picture.width, picture.height);
  all.forEach((row, i) => row.forEach((value, k) => image.data.set([...colour(value), 255], 4 * (i * picture.width + k))));
  pen.putImageData(image, 0, 0);
  const row_at = (chart, event) => {
    const y = event.clientY - chart.canvas.getBoundingClientRect().top;
    return D.names[Math.floor(((y - chart.top) / (chart.bottom - chart.top)) * D.names.length)];
  };
  new Chart($(id), {
    tall: 420, left: 86, bare: true, label: "302 neurons, head to tail within a type",
    title: () => name,
    range: () => [D.names.length, 0],
    draw() {
      this.pen.imageSmoothingEnabled = false;
      this.pen.drawImage(picture, this.left, this.top, this.right - this.left, this.bottom - this.top);
    },
    after() {
      this.pen.font = FONT;
      this.pen.textAlign = "right";
      kinds.forEach(([type, i], n) => {
        const next = n + 1 < kinds.length ? kinds[n + 1][1] : D.names.length;
        if (i) this.rule(this.left - 58, this.y(i), this.right, this.y(i), "#555555", 0.7);
        if (next - i > 8) this.pen.fillText(type, this.left - 6, (this.y(i) + this.y(next)) / 2);
      });
      D.names.forEach((each, i) => {
        if (D.observed.includes(each)) this.rule(this.right + 3, this.y(i + 0.5), this.right + 9, this.y(i + 0.5), ORANGE);
      });
    },
    click(event) { const name = row_at(this, event); if (name) choose(name); },
    hover(event) { this.canvas.title = row_at(this, event) ?? ""; },
  });
}

const [spread, spread_blind, error] = D.spread;
$("spread_key").innerHTML = key([stroke(BLUE), "spread: sd of the members"], [stroke(INK), "error of their mean"],
  [stroke(GREY, "dashed"), "spread, unconditioned"]);
new Chart($("spread"), {
  label: "mV", tall: 190, title: () => "spread and error",
  range: () => limits(D.spread, 0.2, true),
  draw() {
    this.line(spread_blind, GREY, 1.2, [4, 3]);
    this.line(spread, BLUE);
    this.line(error, INK);
  },
});
new Chart($("evidence"), {
  label: "nats", tall: 190, left: 68, title: () => "log evidence so far, approximate",
  range: () => limits([D.evidence], 1),
  draw() { this.line(D.evidence, BLUE); },
});
const gain = D.evidence.map((value, k) => value - (k ? D.evidence[k - 1] : 0)), apart = D.time[1] - D.time[0];
new Chart($("gain"), {
  label: "nats", tall: 190, title: () => `log evidence that each ${apart.toFixed(2)} s adds`,
  range: () => limits([gain], 1),
  draw() { this.line(gain, BLUE); },
});

const body = bodies_of(D.bodies), draws = D.bodies.shape[1] - 2;
const span = span_of(D.time.length, [0, 1], (k) => centre_of(body(0, k)), body);
const at_time = (all) => { const [i, part] = place(D.time, now); return (k) => mix(all[k][i], all[k][i + 1], part); };
new View($("true"), {
  span,
  draw() {
    const truth = body(0, ...place(D.time, now));
    this.start(centre_of(truth));
    this.worm(truth, { fill: "#e9e2d4", line: INK, width: 1.3, head: true });
    this.neurons(truth, at_time(true_change));
  },
});
new View($("imputed"), {
  span,
  draw() {
    const truth = body(0, ...place(D.time, now)), mean = body(1, ...place(D.time, now));
    this.start(centre_of(truth));
    this.worm(mean, { fill: "#dbe7f4", line: BLUE, width: 1.3, head: true });
    for (let k = 0; k < draws; k++) this.worm(body(2 + k, nearest(D.time, now)), { line: faded(BLUE, 0.35), width: 0.8 });
    this.neurons(mean, at_time(mean_change));
    this.worm(truth, { line: INK, width: 1.1, dash: [4, 3] });
  },
});

// The branch.
const branch_body = bodies_of(B.bodies), middle = (k) => centre_of(branch_body(2, k));
new View($("branch"), {
  span: span_of(B.time.length, [0, 1, 2], middle, branch_body),
  draw() {
    const where = place(B.time, now);
    this.start(centre_of(branch_body(2, ...where)));
    for (let k = 0; k < B.drawn; k++) {
      this.worm(branch_body(3 + B.drawn + k, ...where), { line: faded(BLUE, 0.25), width: 0.8 });
      this.worm(branch_body(3 + k, ...where), { line: faded(RED, 0.25), width: 0.8 });
    }
    this.worm(branch_body(2, ...where), { fill: faded(BLUE, 0.25), line: BLUE, width: 1.3, head: true });
    this.worm(branch_body(1, ...where), { fill: faded(RED, 0.25), line: RED, width: 1.3, head: true });
    this.worm(branch_body(0, ...where), { line: INK, width: 1.1, dash: [4, 3] });
    this.pen.fillStyle = INK;
    this.pen.font = `600 ${FONT}`;
    const clamp = `AVA held at ${fixed(B.hold, 0)} mV`, left = fixed(B.at, 2);
    this.pen.fillText(now < B.at - 1e-9 ? `the clamp begins at ${left} s` : now < B.until ? clamp : "clamp released", 12, 20);
  },
});
$("branch_key").innerHTML = key([`background:${faded(RED, 0.3)};border:1px solid ${RED}`, "AVA clamped, mean"],
  [`background:${faded(BLUE, 0.3)};border:1px solid ${BLUE}`, "left alone, mean"], [stroke(INK, "dashed"), "the true worm, clamped"],
  [stroke(faded(RED, 0.4)), "some worms of each"], [`background:${faded(RED, 0.25)}`, "90 % band"], [`background:${faded(RED, 0.55)}`, "50 % band"]);
function branch_chart(packed, item, label, title) {
  const canvas = document.createElement("canvas"), figure = document.createElement("figure");
  canvas.className = "time";
  figure.append(canvas);
  $("branches").append(figure);
  new Chart(canvas, {
    tall: 180, times: B.time, label, title: () => title,
    range: () => limits([0, 2, 5].map((row) => packed.series(item, row)), 0.5, packed === change),
    draw() {
      const [truth, mean, q05, q25, q75, q95] = [0, 1, 2, 3, 4, 5].map((row) => packed.series(item, row));
      this.pen.fillStyle = faded(ORANGE, 0.08);
      this.pen.fillRect(this.left, this.top, this.x(B.until) - this.left, this.bottom - this.top);
      if (packed === change) this.rule(this.left, this.y(0), this.right, this.y(0), "#999999");
      this.band(q05, q95, faded(RED, 0.25));
      this.band(q25, q75, faded(RED, 0.4));
      this.line(mean, RED, 1.5);
      this.line(truth, INK, 1.5);
    },
  });
}
B.clamps.forEach((name, k) => branch_chart(current, k, "current (pA)", `${name}: clamp current`));
B.neurons.forEach((name, k) =>
  branch_chart(change, k, "change (mV)", `${name}, ${D.observed.includes(name) ? "" : "not "}recorded`));

// The clock.
let playing = false, before = null;
function refresh() {
  for (const part of [...charts, ...views]) part instanceof Chart ? part.move() : part.draw();
  $("time").value = now;
  $("clock").textContent = `${now.toFixed(2)} of ${END.toFixed(2)} s`;
  const k = nearest(D.time, now), at = (row) => fixed(voltage.series(chosen, row)[k], 2);
  $("values").textContent = `${D.names[chosen]} at ${D.time[k].toFixed(2)} s: truth ${at(TRUE)} mV; imputed ${at(MEAN)} mV, ` +
    `90 % from ${at(Q05)} to ${at(Q95)} mV; unconditioned ${at(BLIND)} mV, 90 % from ${at(BLIND05)} to ${at(BLIND95)} mV`;
}
function repaint(some = charts) {
  for (const chart of some) chart.paint();
  refresh();
}
function seek(t) {
  now = Math.max(0, Math.min(END, t));
  refresh();
}
function tick(moment) {
  if (!playing) return;
  if (before !== null) {
    now += ((moment - before) / 1000) * Number($("speed").value);
    if (now > END) now = 0;
    refresh();
  }
  before = moment;
  window.requestAnimationFrame(tick);
}
function turn() {
  playing = !playing;
  before = null;
  $("play").textContent = playing ? "pause" : "play";
  if (playing) window.requestAnimationFrame(tick);
}
$("time").max = END;
$("time").oninput = () => seek(Number($("time").value));
$("play").onclick = turn;
$("go").onclick = () => seek(B.at);
document.addEventListener("keydown", (event) => {
  const on = event.target.tagName, step = D.time[1] - D.time[0];
  if (event.ctrlKey || event.altKey || event.metaKey || on === "SELECT") return;
  if (event.key === " " && on !== "BUTTON") turn();
  else if (event.key === "ArrowRight" && on !== "INPUT") seek(now + step);
  else if (event.key === "ArrowLeft" && on !== "INPUT") seek(now - step);
  else return;
  event.preventDefault();
});
choose(D.shown[0]);
let width = 0;
new ResizeObserver(() => { if (document.body.clientWidth !== width) (width = document.body.clientWidth), repaint(); }).observe(document.body);
