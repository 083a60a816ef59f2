/**
 * The whole recording in one strip, the visible window framed in it. Dragging moves the window, pressing elsewhere
 * brings it there. It repeats what the buttons and keys of the timeline do, so that nobody needs it.
 */
import { View } from "./scale.js";
import { Model, firstEndingAfter } from "./model.js";
import { Palette } from "./draw.js";

const STEPS_PX = 3;
/** No frame is drawn narrower, so that it can be found and taken hold of. */
const LEAST_PX = 8;

export class Minimap {
  /**
   * @param {HTMLCanvasElement} canvas
   * @param {() => View} view
   * @param {() => void} changed after the view changed
   */
  constructor(canvas, view, changed) {
    this.canvas = canvas;
    this.context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    /** The recording, drawn once per size and colours. */
    this.whole = document.createElement("canvas");
    this.width = 0;
    this.height = 0;
    /** @type {number | null} where inside the window it was taken hold of, as a share of it */
    this.held = null;
    const follow = (/** @type {PointerEvent} */ event) => {
      if (this.held === null) return;
      const now = view();
      const time = now.min + (event.offsetX / this.width) * (now.max - now.min);
      now.pan(time - now.start - this.held * now.length);
      changed();
    };
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      canvas.setPointerCapture(event.pointerId);
      const { left, right } = this.box(view());
      this.held = event.offsetX >= left && event.offsetX <= right ? (event.offsetX - left) / (right - left) : 0.5;
      follow(event);
    });
    canvas.addEventListener("pointermove", follow);
    for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => (this.held = null));
    canvas.addEventListener("dblclick", () => {
      view().set(view().min, view().max);
      changed();
    });
  }

  /**
   * Draw the recording anew, for another rank, size or theme.
   * @param {Model} model
   * @param {Palette} palette
   */
  show(model, palette) {
    const ratio = window.devicePixelRatio || 1;
    this.width = this.canvas.clientWidth;
    this.height = this.canvas.clientHeight;
    for (const canvas of [this.canvas, this.whole]) {
      canvas.width = Math.round(this.width * ratio);
      canvas.height = Math.round(this.height * ratio);
    }
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.palette = palette;
    const context = /** @type {CanvasRenderingContext2D} */ (this.whole.getContext("2d"));
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = palette.page;
    context.fillRect(0, 0, this.width, this.height);
    const idle = model.tracks.filter((track) => track.kind === "idle");
    const steps = model.tracks.find((track) => track.kind === "steps");
    const share = (this.height - STEPS_PX) / Math.max(idle.length, 1);
    const perNs = this.width / Math.max(model.end - model.start, 1);
    idle.forEach((track, at) => {
      const top = STEPS_PX + at * share;
      context.fillStyle = palette.get("--t-kernel-1");
      context.fillRect(0, top, this.width, share - 1);
      for (const row of track.rows) {
        for (let i = 0; i < row.start.length; ) {
          const left = (row.start[i] - model.start) * perNs;
          const right = (row.end[i] - model.start) * perNs;
          context.fillStyle = palette.slice("idle", model.category(row.pair[i]), "");
          context.fillRect(left, top, Math.max(right - left, 0.5), share - 1);
          // what begins in a pixel that is painted is not seen
          i = Math.max(i + 1, right - left < 1 ? firstEndingAfter(row, model.start + (Math.floor(right) + 1) / perNs) : 0);
        }
      }
    });
    context.fillStyle = palette.soft;
    for (const start of steps?.rows[0]?.start ?? []) context.fillRect((start - model.start) * perNs, 0, 1, STEPS_PX);
  }

  /** @param {View} view */
  box(view) {
    const perNs = this.width / (view.max - view.min);
    const left = (view.start - view.min) * perNs;
    const right = (view.end - view.min) * perNs;
    const more = Math.max(LEAST_PX - (right - left), 0) / 2;
    return { left: left - more, right: right + more };
  }

  /** @param {View} view */
  paint(view) {
    if (!this.width || !this.palette) return;
    const { context, palette } = this;
    context.drawImage(this.whole, 0, 0, this.width, this.height);
    const { left, right } = this.box(view);
    context.globalAlpha = 0.6;
    context.fillStyle = palette.page;
    context.fillRect(0, 0, left, this.height);
    context.fillRect(right, 0, this.width - right, this.height);
    context.globalAlpha = 1;
    context.strokeStyle = palette.accent;
    context.lineWidth = 2;
    context.strokeRect(left + 1, 1, Math.max(right - left - 2, 1), this.height - 2);
  }
}
