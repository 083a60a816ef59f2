/**
 * Drawing: an axis, then every track in view. Slices narrower than a pixel share that pixel.
 */
import { View, shortNs, ticks } from "./scale.js";
import { Model, firstEndingAfter, idleLabel } from "./model.js";
import { say } from "./words.js";

export const AXIS = 24;
const HEADING = 20;
const ROW = 17;
const COUNTER = 40;
const GAP = 8;
/** Rows of one track drawn at most; deeper ones would push everything else off the screen. */
export const MAX_ROWS = 24;

/** @typedef {{track: import("./model.js").Track, top: number, height: number}} Place */

/**
 * Stack the tracks.
 * @param {Model} model
 * @returns {{places: Place[], height: number}}
 */
export function layout(model) {
  let top = AXIS + 4;
  const places = model.tracks.map((track) => {
    const body = track.time ? COUNTER : Math.min(depthOf(model, track), MAX_ROWS) * ROW;
    const place = { track, top, height: HEADING + body };
    top += place.height + GAP;
    return place;
  });
  return { places, height: top };
}

/**
 * Depth of a track over the overview and the exact windows, so that rows do not jump on zoom.
 * @param {Model} model
 * @param {import("./model.js").Track} track
 */
function depthOf(model, track) {
  const exact = model.details.map((detail) => detail.tracks.get(track.id)?.rows.length ?? 0);
  return Math.max(track.rows.length, ...exact, 1);
}

/**
 * Vertical extent of a row.
 * @param {Place} place
 * @param {number} depth
 */
export function rowBox(place, depth) {
  return { top: place.top + HEADING + depth * ROW, height: ROW - 1 };
}

/**
 * Row at a height inside a place; -1 in its heading.
 * @param {Place} place
 * @param {number} y
 */
export function depthAt(place, y) {
  return y < place.top + HEADING ? -1 : Math.floor((y - place.top - HEADING) / ROW);
}

/** Colours of the page, read once per theme. */
export class Palette {
  constructor() {
    this.style = getComputedStyle(document.documentElement);
    /** @type {Map<string, string>} */
    this.known = new Map();
    this.ink = this.get("--ink");
    this.soft = this.get("--soft");
    this.line = this.get("--line");
    this.page = this.get("--card");
    this.accent = this.get("--accent");
    this.font = `12px ${this.get("--sans")}`;
  }

  /** @param {string} variable */
  get(variable) {
    let colour = this.known.get(variable);
    if (colour === undefined) {
      colour = this.style.getPropertyValue(variable).trim() || "#888888";
      this.known.set(variable, colour);
    }
    return colour;
  }

  /**
   * @param {string} kind of the track
   * @param {string} category
   * @param {string} name
   */
  slice(kind, category, name) {
    if (kind === "idle") return this.get(`--c-${category}`);
    if (kind === "steps") return this.get(category === "steady" ? "--t-step" : "--t-step-other");
    if (kind === "phases") return this.get(`--p-${category}`);
    const shade = shadeOf(name);
    const base = CATEGORY[category] ?? "operator";
    return this.get(base === "kernel" || base === "operator" ? `--t-${base}-${shade}` : `--t-${base}`);
  }
}

/** @type {Record<string, string>} */
const CATEGORY = {
  kernel: "kernel",
  graph: "kernel",
  copy: "copy",
  memset: "memset",
  operator: "operator",
  annotation: "annotation",
  python: "python",
  "garbage collection": "gc",
  "os call": "os",
  launch: "launch",
  "copy call": "copy",
  synchronize: "sync",
  allocation: "allocation",
  "module load": "module",
  call: "call",
};

/** @type {Map<string, number>} */
const shades = new Map();

/** @param {string} name one of three shades, always the same for a name */
function shadeOf(name) {
  let shade = shades.get(name);
  if (shade === undefined) {
    let hash = 7;
    for (let i = 0; i < name.length; i++) hash = (hash * 31 + name.charCodeAt(i)) | 0;
    shade = Math.abs(hash) % 3;
    shades.set(name, shade);
  }
  return shade;
}

/**
 * @typedef {object} Scene what to draw
 * @property {Model} model
 * @property {View} view
 * @property {Place[]} places
 * @property {number} scroll pixels scrolled down
 * @property {number} width
 * @property {number} height
 * @property {Palette} palette
 * @property {import("./model.js").Detail | null} detail
 * @property {import("./model.js").Slice | null} selected
 * @property {{start: number, end: number, tracks: string[]} | null} highlight
 * @property {Set<number> | null} matches pairs a search found
 */

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Scene} scene
 */
export function draw(context, scene) {
  const { view, width, height, palette, model } = scene;
  context.fillStyle = palette.page;
  context.fillRect(0, 0, width, height);
  context.font = palette.font;
  context.textBaseline = "middle";
  drawStepLines(context, scene);
  drawHighlight(context, scene);
  for (const place of scene.places) {
    const top = place.top - scene.scroll;
    if (top + place.height < AXIS || top > height) continue;
    const track = model.exact(place.track, scene.detail);
    if (track.time) drawCounter(context, scene, place, top);
    else track.rows.forEach((row, depth) => depth < MAX_ROWS && drawRow(context, scene, place, row, depth));
    const deeper = track.rows.length > MAX_ROWS ? say(" ({} deeper rows not drawn)", track.rows.length - MAX_ROWS) : "";
    heading(context, palette, place.track.title + deeper, top);
  }
  drawArrows(context, scene);
  drawAxis(context, view, width, palette);
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Palette} palette
 * @param {string} title
 * @param {number} top
 */
function heading(context, palette, title, top) {
  context.fillStyle = palette.soft;
  context.fillText(title, 8, top + HEADING / 2);
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Scene} scene
 * @param {Place} place
 * @param {import("./model.js").Row} row
 * @param {number} depth
 */
function drawRow(context, scene, place, row, depth) {
  const { view, width, palette, model, matches, selected } = scene;
  const box = rowBox(place, depth);
  const y = box.top - scene.scroll;
  if (y + box.height < AXIS || y > scene.height) return;
  const perNs = width / view.length;
  const kind = place.track.kind;
  let i = firstEndingAfter(row, view.start);
  let filled = -1;
  while (i < row.start.length && row.start[i] < view.end) {
    const left = Math.max((row.start[i] - view.start) * perNs, -2);
    const right = Math.min((row.end[i] - view.start) * perNs, width + 2);
    const pair = row.pair[i];
    const found = !matches || matches.has(pair);
    if (matches && !found && right < filled) {
      i += 1;
      continue;
    }
    const name = model.name(pair);
    const category = model.category(pair);
    const drawn = Math.max(right - left - (right - left > 3 ? 0.5 : 0), 0.75);
    context.globalAlpha = found ? 1 : 0.18;
    context.fillStyle = palette.slice(kind, category, name);
    context.fillRect(left, y, drawn, box.height);
    if (right - left > 34) {
      label(context, palette, kind === "idle" ? idleLabel(category) : kind === "phases" ? say(name) : name, Math.max(left, 0) + 4, right - 4, y, box.height);
    }
    context.globalAlpha = 1;
    if (selected && selected.row === row && selected.index === i) {
      context.strokeStyle = palette.ink;
      context.lineWidth = 2;
      context.strokeRect(left, y, Math.max(drawn, 2), box.height);
    }
    filled = Math.floor(right) + 1;
    // this pixel is painted: go on with the first slice that reaches beyond it (a search looks at every slice)
    if (right - left < 1 && !matches) i = Math.max(i + 1, firstEndingAfter(row, view.start + filled / perNs));
    else i += 1;
  }
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Palette} palette
 * @param {string} text
 * @param {number} left
 * @param {number} right
 * @param {number} y
 * @param {number} height
 */
function label(context, palette, text, left, right, y, height) {
  const room = Math.floor((right - left) / 6.4);
  if (room < 3) return;
  context.fillStyle = contrast(String(context.fillStyle)) ? "#10151c" : "#ffffff";
  const shown = text.length > room ? `${text.slice(0, room - 1)}…` : text;
  context.fillText(shown, left, y + height / 2 + 0.5, right - left);
}

/** @type {Map<string, boolean>} */
const brightness = new Map();

/** @param {string} colour `#rrggbb`; true where dark text reads better on it */
function contrast(colour) {
  let bright = brightness.get(colour);
  if (bright === undefined) {
    const channel = (/** @type {number} */ at) => {
      const value = Number.parseInt(colour.slice(at, at + 2), 16) / 255;
      return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
    };
    bright = 0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5) > 0.19;
    brightness.set(colour, bright);
  }
  return bright;
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Scene} scene
 * @param {Place} place
 * @param {number} top
 */
function drawCounter(context, scene, place, top) {
  const { view, width, palette } = scene;
  const { time, value, low, high, unit } = place.track;
  if (!time || !value) return;
  const base = top + HEADING + COUNTER - 2;
  const perValue = (COUNTER - 6) / (high - low || 1);
  let i = Math.max(search(time, view.start) - 1, 0);
  context.beginPath();
  context.moveTo(view.xOf(Math.max(time[i], view.start), width), base);
  for (; i < time.length && time[i] <= view.end; i++) {
    const left = view.xOf(Math.max(time[i], view.start), width);
    const right = i + 1 < time.length ? view.xOf(Math.min(time[i + 1], view.end), width) : left;
    const y = base - (value[i] - low) * perValue;
    context.lineTo(left, y);
    context.lineTo(right, y);
  }
  context.lineTo(view.xOf(Math.min(time[time.length - 1], view.end), width), base);
  context.fillStyle = palette.get("--t-counter");
  context.fill();
  context.fillStyle = palette.soft;
  context.textAlign = "right";
  context.fillText(say("max {}", amount(high, unit)), width - 8, top + HEADING / 2);
  context.textAlign = "left";
}

/**
 * First index whose time is after a moment.
 * @param {Float64Array} times
 * @param {number} moment
 */
export function search(times, moment) {
  let low = 0;
  let high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] > moment) high = middle;
    else low = middle + 1;
  }
  return low;
}

/**
 * @param {number} value
 * @param {string} unit
 */
export function amount(value, unit) {
  if (unit === "ns") return shortNs(value);
  if (unit === "B") {
    const names = ["B", "KiB", "MiB", "GiB", "TiB"];
    let size = value;
    let i = 0;
    while (Math.abs(size) >= 1024 && i < names.length - 1) {
      size /= 1024;
      i += 1;
    }
    return `${size.toFixed(i ? 2 : 0)} ${names[i]}`;
  }
  return `${Number(value.toFixed(2))}${unit ? ` ${unit}` : ""}`;
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Scene} scene
 */
function drawStepLines(context, scene) {
  const steps = scene.model.tracks.find((track) => track.kind === "steps");
  if (!steps) return;
  context.fillStyle = scene.palette.line;
  for (const start of steps.rows[0]?.start ?? []) {
    if (start < scene.view.start || start > scene.view.end) continue;
    context.fillRect(Math.round(scene.view.xOf(start, scene.width)), AXIS, 1, scene.height);
  }
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Scene} scene
 */
function drawHighlight(context, scene) {
  const { highlight, view, width, palette } = scene;
  if (!highlight) return;
  const left = view.xOf(highlight.start, width);
  const right = Math.max(view.xOf(highlight.end, width), left + 2);
  context.globalAlpha = 0.14;
  context.fillStyle = palette.accent;
  context.fillRect(left, AXIS, right - left, scene.height);
  context.globalAlpha = 1;
  context.fillRect(left, AXIS, 1.5, scene.height);
  context.fillRect(right - 1.5, AXIS, 1.5, scene.height);
  for (const place of scene.places) {
    if (!highlight.tracks.includes(place.track.id)) continue;
    context.strokeStyle = palette.accent;
    context.lineWidth = 1.5;
    context.strokeRect(left, place.top - scene.scroll, right - left, place.height + 2);
  }
}

/**
 * Arrows from the selected launch to what it started, or from the selected activity back to its launch.
 * @param {CanvasRenderingContext2D} context
 * @param {Scene} scene
 */
function drawArrows(context, scene) {
  const { selected, model } = scene;
  if (!selected || selected.row.link[selected.index] < 0) return;
  const slices = model.linked(selected.row.link[selected.index], scene.detail);
  const launch = slices.find((slice) => slice.track.kind === "thread");
  if (!launch) return;
  const from = spot(scene, launch, launch.row.end[launch.index]);
  context.strokeStyle = scene.palette.ink;
  context.fillStyle = scene.palette.ink;
  context.lineWidth = 1.25;
  for (const slice of slices) {
    if (slice.track.kind !== "stream" || !from) continue;
    const to = spot(scene, slice, slice.row.start[slice.index]);
    if (!to) continue;
    const bend = Math.max(Math.abs(to.x - from.x) / 2, 24);
    context.beginPath();
    context.moveTo(from.x, from.y);
    context.bezierCurveTo(from.x + bend, from.y, to.x - bend, to.y, to.x - 5, to.y);
    context.stroke();
    context.beginPath();
    context.moveTo(to.x, to.y);
    context.lineTo(to.x - 7, to.y - 4);
    context.lineTo(to.x - 7, to.y + 4);
    context.fill();
  }
}

/**
 * @param {Scene} scene
 * @param {import("./model.js").Slice} slice
 * @param {number} time
 */
function spot(scene, slice, time) {
  const place = scene.places.find((candidate) => candidate.track.id === slice.track.id);
  if (!place) return null;
  const box = rowBox(place, slice.depth);
  return { x: scene.view.xOf(time, scene.width), y: box.top - scene.scroll + box.height / 2 };
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {View} view
 * @param {number} width
 * @param {Palette} palette
 */
function drawAxis(context, view, width, palette) {
  context.fillStyle = palette.page;
  context.fillRect(0, 0, width, AXIS);
  context.fillStyle = palette.line;
  context.fillRect(0, AXIS - 1, width, 1);
  const { times, label: text } = ticks(view, width);
  for (const time of times) {
    const x = view.xOf(time, width);
    context.fillStyle = palette.line;
    context.fillRect(Math.round(x), AXIS - 7, 1, 7);
    context.fillStyle = palette.soft;
    context.fillText(text(time), x + 4, AXIS / 2 - 1);
  }
}
