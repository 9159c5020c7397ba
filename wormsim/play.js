// Move the slider in real time while the button is on; start again at the end.
cb_obj.label = cb_obj.active ? "pause" : "play";
let before = null;
function tick(now) {
  if (!cb_obj.active) return;
  if (before !== null) {
    const next = slider.value + (now - before) / 1000;
    slider.value = next > slider.end ? slider.start : next;
  }
  before = now;
  window.requestAnimationFrame(tick);
}
if (cb_obj.active) window.requestAnimationFrame(tick);
