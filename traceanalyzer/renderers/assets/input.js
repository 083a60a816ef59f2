/**
 * Mouse, touch and keyboard as changes of the view. The page keeps scrolling under the wheel until the timeline has
 * the focus (or Ctrl is held), so that nobody gets stuck in it.
 */
import { View } from "./scale.js";

/**
 * @typedef {object} Actions
 * @property {() => View} view
 * @property {() => void} changed after the view changed
 * @property {(x: number, y: number) => void} hover
 * @property {() => void} leave
 * @property {(x: number, y: number) => void} click
 * @property {(forward: boolean) => void} step select a neighbour
 * @property {(down: boolean) => void} row select in the row above or below
 * @property {() => void} fit show the selection
 * @property {() => void} reset
 * @property {() => void} clear
 * @property {() => void} find focus the search box
 */

const DRAG_PX = 4;

/**
 * @param {HTMLElement} frame the focusable scroller
 * @param {HTMLCanvasElement} canvas
 * @param {Actions} actions
 */
export function listen(frame, canvas, actions) {
  wheel(frame, canvas, actions);
  pointers(frame, canvas, actions);
  keys(frame, actions);
}

/**
 * @param {HTMLElement} frame
 * @param {HTMLCanvasElement} canvas
 * @param {Actions} actions
 */
function wheel(frame, canvas, actions) {
  frame.addEventListener(
    "wheel",
    (event) => {
      const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
      const zooms = event.ctrlKey || event.metaKey || document.activeElement === frame;
      if (!sideways && !zooms && !event.shiftKey) return;
      event.preventDefault();
      const view = actions.view();
      const unit = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 18 : 1;
      if (sideways || event.shiftKey) {
        const delta = sideways ? event.deltaX : event.deltaY;
        view.pan((delta * unit * view.length) / canvas.clientWidth);
      } else {
        const at = view.timeAt(event.clientX - canvas.getBoundingClientRect().left, canvas.clientWidth);
        view.zoom(at, Math.exp(Math.max(-60, Math.min(60, event.deltaY * unit)) * 0.006));
      }
      actions.changed();
    },
    { passive: false },
  );
}

/**
 * @param {HTMLElement} frame
 * @param {HTMLCanvasElement} canvas
 * @param {Actions} actions
 */
function pointers(frame, canvas, actions) {
  /** @type {Map<number, {x: number, y: number}>} */
  const down = new Map();
  let moved = 0;
  const at = (/** @type {PointerEvent} */ event) => {
    const box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    frame.focus({ preventScroll: true });
    canvas.setPointerCapture(event.pointerId);
    if (!down.size) moved = 0;
    down.set(event.pointerId, at(event));
  });
  canvas.addEventListener("pointermove", (event) => {
    const now = at(event);
    const before = down.get(event.pointerId);
    if (!before) {
      actions.hover(now.x, now.y);
      return;
    }
    const view = actions.view();
    const width = canvas.clientWidth;
    if (down.size === 1) {
      moved += Math.abs(now.x - before.x) + Math.abs(now.y - before.y);
      if (moved > DRAG_PX) {
        view.pan(((before.x - now.x) * view.length) / width);
        if (event.pointerType === "mouse") frame.scrollTop += before.y - now.y;
        actions.changed();
      }
    } else {
      moved += DRAG_PX + 1;
      const other = [...down].find(([id]) => id !== event.pointerId)?.[1] ?? now;
      const apart = Math.max(Math.abs(now.x - other.x), 8);
      const apartBefore = Math.max(Math.abs(before.x - other.x), 8);
      view.zoom(view.timeAt((now.x + other.x) / 2, width), apartBefore / apart);
      actions.changed();
    }
    down.set(event.pointerId, now);
    actions.leave();
  });
  const up = (/** @type {PointerEvent} */ event) => {
    const last = down.get(event.pointerId);
    down.delete(event.pointerId);
    if (last && event.type === "pointerup" && moved <= DRAG_PX) actions.click(last.x, last.y);
  };
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("pointercancel", up);
  canvas.addEventListener("pointerleave", () => down.size || actions.leave());
  canvas.addEventListener("dblclick", () => actions.fit());
}

/**
 * @param {HTMLElement} frame
 * @param {Actions} actions
 */
function keys(frame, actions) {
  /** @type {Record<string, () => void>} */
  const commands = {
    ArrowLeft: () => actions.view().pan(-actions.view().length / 8),
    ArrowRight: () => actions.view().pan(actions.view().length / 8),
    a: () => actions.view().pan(-actions.view().length / 8),
    d: () => actions.view().pan(actions.view().length / 8),
    "+": () => zoom(1 / 1.5),
    "=": () => zoom(1 / 1.5),
    w: () => zoom(1 / 1.5),
    "-": () => zoom(1.5),
    s: () => zoom(1.5),
    ",": () => actions.step(false),
    ".": () => actions.step(true),
    ArrowUp: () => actions.row(false),
    ArrowDown: () => actions.row(true),
    f: () => actions.fit(),
    Enter: () => actions.fit(),
    Home: () => actions.reset(),
    0: () => actions.reset(),
    Escape: () => actions.clear(),
    "/": () => actions.find(),
  };
  const zoom = (/** @type {number} */ factor) => {
    const view = actions.view();
    view.zoom((view.start + view.end) / 2, factor);
  };
  frame.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target !== frame) return;
    const command = commands[event.key];
    if (!command) return;
    event.preventDefault();
    command();
    actions.changed();
  });
}
