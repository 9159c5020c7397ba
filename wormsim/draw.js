// Draw the frame under the slider: each half of each segment as a quad between the centre line and the dorsal or ventral ends.
const rods = radius.length, segments = rods - 1;
const body = bodies.data.values, muscle = muscles.data.values;
const frames = body.length / (3 * rods);
const frame = Math.min(frames - 1, Math.round(slider.value / step));
const xs = [], ys = [], active = [];
for (const [side, end] of [[0, 1], [1, -1]]) {
  for (let i = 0; i < segments; i++) {
    const a = 3 * (frame * rods + i), b = a + 3;
    const arm_a = end * radius[i], arm_b = end * radius[i + 1];
    xs.push([body[a], body[b], body[b] + arm_b * Math.cos(body[b + 2]), body[a] + arm_a * Math.cos(body[a + 2])]);
    ys.push([body[a + 1], body[b + 1], body[b + 1] + arm_b * Math.sin(body[b + 2]), body[a + 1] + arm_a * Math.sin(body[a + 2])]);
    active.push(muscle[(frame * 2 + side) * segments + i] / 255);
  }
}
worm.data = { xs, ys, active };
const x = [], y = [];
for (let f = 0; f <= frame; f++) {
  let sum_x = 0, sum_y = 0;
  for (let a = 3 * f * rods; a < 3 * (f + 1) * rods; a += 3) {
    sum_x += body[a];
    sum_y += body[a + 1];
  }
  x.push(sum_x / rods);
  y.push(sum_y / rods);
}
trail.data = { x, y };
head.data = { x: [body[3 * frame * rods]], y: [body[3 * frame * rods + 1]] };
