/**
 * The visible window of time, and times as text. All times are integer nanoseconds relative to the recording's origin.
 */

/** Window onto `[min, max]`; never leaves it and never gets narrower than `View.NARROWEST` ns. */
export class View {
  static NARROWEST = 200;

  /**
   * @param {number} min first time there is, ns
   * @param {number} max last time there is, ns
   */
  constructor(min, max) {
    this.min = min;
    this.max = Math.max(max, min + 1);
    this.start = this.min;
    this.end = this.max;
  }

  /** @returns {number} visible length, ns */
  get length() {
    return this.end - this.start;
  }

  /**
   * Show a window, moved and shortened as needed to stay inside the recording.
   * @param {number} start
   * @param {number} end
   */
  set(start, end) {
    const whole = this.max - this.min;
    const length = Math.min(Math.max(end - start, Math.min(View.NARROWEST, whole)), whole);
    let first = start + (end - start - length) / 2;
    first = Math.min(Math.max(first, this.min), this.max - length);
    this.start = first;
    this.end = first + length;
  }

  /**
   * Change the visible length, keeping one moment in place.
   * @param {number} at moment that stays where it is, ns
   * @param {number} factor new length divided by old
   */
  zoom(at, factor) {
    const whole = this.max - this.min;
    const length = Math.min(Math.max(this.length * factor, Math.min(View.NARROWEST, whole)), whole);
    const share = (at - this.start) / this.length;
    this.set(at - share * length, at - share * length + length);
  }

  /** @param {number} ns move by this much; positive shows later times */
  pan(ns) {
    const length = this.length;
    const first = Math.min(Math.max(this.start + ns, this.min), this.max - length);
    this.start = first;
    this.end = first + length;
  }

  /**
   * @param {number} x pixel
   * @param {number} width pixels of the whole view
   */
  timeAt(x, width) {
    return this.start + (x / width) * this.length;
  }

  /**
   * @param {number} time ns
   * @param {number} width pixels of the whole view
   */
  xOf(time, width) {
    return ((time - this.start) / this.length) * width;
  }
}

const UNITS = /** @type {const} */ ([
  [1e9, "s"],
  [1e6, "ms"],
  [1e3, "µs"],
  [1, "ns"],
]);

/**
 * A duration with three significant digits.
 * @param {number} ns
 */
export function shortNs(ns) {
  const size = Math.abs(ns);
  for (const [scale, unit] of UNITS) {
    if (size >= scale || scale === 1) {
      const value = ns / scale;
      const digits = scale === 1 || Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
      return `${value.toFixed(digits)} ${unit}`;
    }
  }
  return `${ns} ns`;
}

/**
 * A duration to the nanosecond.
 * @param {number} ns
 */
export function exactNs(ns) {
  return `${Math.round(ns).toLocaleString("en-US")} ns`;
}

/**
 * Round positions for an axis.
 * @param {View} view
 * @param {number} width pixels
 * @returns {{times: number[], label: (time: number) => string}}
 */
export function ticks(view, width) {
  const wanted = view.length / Math.max(width / 110, 2);
  const power = 10 ** Math.floor(Math.log10(Math.max(wanted, 1)));
  const step = [1, 2, 5, 10].map((m) => m * power).find((size) => size >= wanted) ?? power * 10;
  const times = [];
  for (let time = Math.ceil(view.start / step) * step; time <= view.end; time += step) times.push(time);
  const [scale, unit] = UNITS.find(([size]) => Math.max(view.end, step) >= size * 2 || size === 1) ?? UNITS[3];
  const digits = Math.max(0, Math.ceil(Math.log10(scale / step)));
  return { times, label: (time) => `${(time / scale).toFixed(Math.min(digits, 9))} ${unit}` };
}
