// Move the neurons with the body, colour them, move the cursors, and keep the worm in the middle of the picture.
const rods = radius.length, neurons = position.length;
const body = bodies.data.values, voltage = voltages.data.values;
const nearest = (step, count) => Math.min(count - 1, Math.round(slider.value / step));
const frame = nearest(body_step, body.length / (3 * rods));
const row = neurons * nearest(voltage_step, voltage.length / neurons);
const x = new Float32Array(neurons), y = new Float32Array(neurons);
const volts = new Float32Array(neurons), change = new Float32Array(neurons);
for (let k = 0; k < neurons; k++) {
  const along = position[k] * (rods - 1), i = Math.min(rods - 2, Math.floor(along)), part = along - i;
  const a = 3 * (frame * rods + i);
  const between = (from, to) => from + part * (to - from);
  const arm = side[k] * between(radius[i], radius[i + 1]), angle = between(body[a + 2], body[a + 5]);
  x[k] = between(body[a], body[a + 3]) + arm * Math.cos(angle);
  y[k] = between(body[a + 1], body[a + 4]) + arm * Math.sin(angle);
  volts[k] = voltage[row + k];
  change[k] = volts[k] - mean[k];
}
dots.data = { ...dots.data, x, y, volts, change };
for (const cursor of cursors) cursor.location = start + slider.value;

let sum_x = 0, sum_y = 0;
for (let a = 3 * frame * rods; a < 3 * (frame + 1) * rods; a += 3) {
  sum_x += body[a];
  sum_y += body[a + 1];
}
// The window keeps the size that the reader has zoomed to.
for (const [range, middle] of [[picture.x_range, sum_x / rods], [picture.y_range, sum_y / rods]]) {
  const half = (range.end - range.start) / 2;
  range.setv({ start: middle - half, end: middle + half });
}
