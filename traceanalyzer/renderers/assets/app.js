/**
 * Ties the embedded data, the canvas and the page together.
 */
import { View, exactNs, shortNs } from "./scale.js";
import { Model, firstEndingAfter, idleLabel } from "./model.js";
import { AXIS, MAX_ROWS, Palette, amount, depthAt, draw, layout, rowBox, search } from "./draw.js";
import { listen } from "./input.js";
import { Minimap } from "./minimap.js";
import { offerTables } from "./tables.js";
import { say } from "./words.js";

/** The timeline of one page. */
class Timeline {
  /**
   * @param {HTMLElement} root
   * @param {any[]} payloads one per rank
   */
  constructor(root, payloads) {
    const part = (/** @type {string} */ name) => /** @type {HTMLElement} */ (root.querySelector(`[data-part=${name}]`));
    this.root = root;
    this.frame = part("frame");
    this.canvas = /** @type {HTMLCanvasElement} */ (part("canvas"));
    this.spacer = part("spacer");
    this.tip = part("tip");
    this.info = part("info");
    this.status = part("status");
    this.box = /** @type {HTMLInputElement} */ (part("search"));
    this.found = part("found");
    this.context = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
    this.payloads = payloads;
    /** @type {Map<number, Model>} */
    this.models = new Map();
    this.palette = new Palette();
    this.pending = false;
    /** @type {number[]} */
    this.frames = [];
    this.minimap = new Minimap(
      /** @type {HTMLCanvasElement} */ (part("minimap")),
      () => this.view,
      () => this.request(),
    );
    this.show(payloads[0].rank);
    this.wire(part);
  }

  /** @param {number} rank */
  show(rank) {
    let model = this.models.get(rank);
    if (!model) {
      model = new Model(this.payloads.find((payload) => payload.rank === rank) ?? this.payloads[0]);
      this.models.set(rank, model);
    }
    this.model = model;
    this.view = new View(model.start, model.end);
    const { places, height } = layout(model);
    this.places = places;
    this.tall = height;
    /** @type {import("./model.js").Slice | null} */
    this.selected = null;
    /** @type {{start: number, end: number, tracks: string[]} | null} */
    this.highlight = null;
    /** @type {Set<number> | null} */
    this.matches = null;
    this.resize();
  }

  /** @param {(name: string) => HTMLElement} part */
  wire(part) {
    listen(this.frame, this.canvas, {
      view: () => this.view,
      changed: () => this.request(),
      hover: (x, y) => this.hover(x, y),
      leave: () => this.hideTip(),
      click: (x, y) => this.select(this.hit(x, y)),
      step: (forward) => this.neighbour(forward),
      row: (down) => this.otherRow(down),
      fit: () => this.fit(),
      reset: () => this.reset(),
      clear: () => this.clear(),
      find: () => this.box.focus(),
    });
    this.frame.addEventListener("scroll", () => this.request());
    new ResizeObserver(() => this.resize()).observe(this.frame);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.palette = new Palette();
      this.minimap.show(this.model, this.palette);
      this.request();
    });
    const middle = () => (this.view.start + this.view.end) / 2;
    const button = (/** @type {string} */ name, /** @type {() => void} */ action) =>
      part(name).addEventListener("click", () => {
        action();
        this.request();
      });
    button("in", () => this.view.zoom(middle(), 1 / 2));
    button("out", () => this.view.zoom(middle(), 2));
    button("left", () => this.view.pan(-this.view.length / 4));
    button("right", () => this.view.pan(this.view.length / 4));
    button("reset", () => this.reset());
    this.box.addEventListener("input", () => this.find(this.box.value));
    this.box.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.nextMatch(!event.shiftKey);
      else if (event.key === "Escape") {
        this.box.value = "";
        this.find("");
        this.frame.focus();
      }
    });
    const ranks = this.root.querySelector("select");
    ranks?.addEventListener("change", () => this.show(Number(ranks.value)));
    document.addEventListener("click", (event) => {
      const link = event.target instanceof Element ? event.target.closest("[data-from]") : null;
      if (!(link instanceof HTMLElement)) return;
      event.preventDefault();
      this.openEvidence(link, ranks);
    });
  }

  /**
   * @param {HTMLElement} link
   * @param {HTMLSelectElement | null} ranks
   */
  openEvidence(link, ranks) {
    const { from, to, rank, thread, stream, device } = link.dataset;
    if (rank !== undefined && Number(rank) !== this.model.rank && this.payloads.some((p) => p.rank === Number(rank))) {
      this.show(Number(rank));
      if (ranks) ranks.value = rank;
    }
    const tracks = this.model.tracks
      .map((track) => track.id)
      .filter(
        (id) =>
          (thread && (id === `thread:${thread}` || id === `python:${thread}`)) ||
          (stream && id.startsWith("stream:") && id.endsWith(`:${stream}`) && (!device || id === `stream:${device}:${stream}`)) ||
          (id.startsWith("idle:") && (!device || id === `idle:${device}`)),
      );
    this.goTo(Number(from), Number(to), tracks);
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.root.scrollIntoView({ behavior: still ? "auto" : "smooth", block: "start" });
    this.frame.focus({ preventScroll: true });
    for (const shown of document.querySelectorAll("[data-from][aria-current]")) shown.removeAttribute("aria-current");
    link.setAttribute("aria-current", "true");
  }

  /**
   * Move to an interval and mark it.
   * @param {number} start ns
   * @param {number} end ns
   * @param {string[]} tracks ids to frame
   */
  goTo(start, end, tracks) {
    const margin = Math.max((end - start) * 0.6, 5000);
    this.view.set(start - margin, end + margin);
    this.highlight = { start, end, tracks };
    this.select(null);
    const first = this.places.find((place) => tracks.includes(place.track.id) && place.track.kind !== "idle");
    if (first) this.reveal(first.top, first.height);
    this.info.textContent = say("Evidence: {} from {} to {}.", exactNs(end - start), exactNs(start), exactNs(end));
    this.request();
  }

  /**
   * @param {number} top
   * @param {number} height
   */
  reveal(top, height) {
    const shown = this.frame.clientHeight;
    if (top - AXIS < this.frame.scrollTop || top + Math.min(height, 120) > this.frame.scrollTop + shown) {
      this.frame.scrollTop = top - shown / 3;
    }
  }

  resize() {
    const width = this.frame.clientWidth;
    this.frame.style.maxHeight = `${Math.max(this.tall + 10, 140)}px`;
    const height = this.frame.clientHeight;
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.height = `${height}px`;
    this.spacer.style.height = `${Math.max(this.tall - height, 0)}px`;
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.minimap.show(this.model, this.palette);
    this.paint();
  }

  request() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      this.paint();
    });
  }

  paint() {
    const begun = performance.now();
    const { view, model } = this;
    this.detail = model.detailFor(view.start, view.end);
    draw(this.context, {
      model,
      view,
      places: this.places,
      scroll: this.frame.scrollTop,
      width: this.frame.clientWidth,
      height: this.canvas.clientHeight,
      palette: this.palette,
      detail: this.detail,
      selected: this.selected,
      highlight: this.highlight,
      matches: this.matches,
    });
    this.minimap.paint(view);
    this.status.textContent = `${say("{} of {} shown", shortNs(view.length), shortNs(view.max - view.min))} · ${this.exactness()}`;
    this.frames.push(performance.now() - begun);
    if (this.frames.length > 240) this.frames.shift();
  }

  exactness() {
    const { model, detail } = this;
    if (!model.binned) return say("every event is drawn");
    if (detail) return say("every event is drawn ({})", detail.why);
    return say("events shorter than {} are merged with their neighbours", shortNs(model.binned));
  }

  /**
   * @param {number} x
   * @param {number} y
   * @returns {import("./model.js").Slice | null}
   */
  hit(x, y) {
    const place = this.placeAt(y);
    if (!place || place.track.time) return null;
    const depth = depthAt(place, y + this.frame.scrollTop);
    if (depth >= MAX_ROWS) return null;
    const row = this.model.exact(place.track, this.detail ?? null).rows[depth];
    if (!row) return null;
    // a finger or an arrow may miss by two pixels
    const width = this.frame.clientWidth;
    for (const slack of [0, 1, 2]) {
      const index = firstEndingAfter(row, this.view.timeAt(x - slack, width));
      if (index < row.start.length && row.start[index] <= this.view.timeAt(x + slack, width)) {
        return { track: place.track, row, depth, index };
      }
    }
    return null;
  }

  /** @param {number} y */
  placeAt(y) {
    if (y < AXIS) return null;
    const down = y + this.frame.scrollTop;
    return this.places.find((place) => down >= place.top && down < place.top + place.height) ?? null;
  }

  /**
   * @param {number} x
   * @param {number} y
   */
  hover(x, y) {
    const slice = this.hit(x, y);
    const lines = slice ? this.lines(slice) : this.counterLines(x, y);
    if (!lines.length) {
      this.hideTip();
      return;
    }
    this.tip.replaceChildren(
      ...lines.map((text, i) => {
        const line = document.createElement(i ? "div" : "strong");
        line.textContent = text;
        return line;
      }),
    );
    this.tip.hidden = false;
    const box = this.root.getBoundingClientRect();
    const canvas = this.canvas.getBoundingClientRect();
    const left = canvas.left - box.left + x + 14;
    const room = box.width - this.tip.offsetWidth - 4;
    this.tip.style.left = `${Math.max(Math.min(left, room), 0)}px`;
    this.tip.style.top = `${canvas.top - box.top + y + 16}px`;
  }

  hideTip() {
    this.tip.hidden = true;
  }

  /** @param {import("./model.js").Slice} slice */
  lines(slice) {
    const about = this.model.describe(slice);
    const lines = [about.name, `${about.category} · ${exactNs(about.duration)}`, say("starts at {}", exactNs(about.start))];
    if (about.merged > 1) lines.push(say("stands for {} short events; named after the longest", about.merged));
    if (slice.track.kind === "idle") lines.push(...this.gapLines(slice));
    return lines;
  }

  /**
   * The causes of the whole gap a piece belongs to.
   * @param {import("./model.js").Slice} slice
   */
  gapLines({ row, index }) {
    let first = index;
    let last = index;
    while (first > 0 && row.end[first - 1] === row.start[first]) first -= 1;
    while (last + 1 < row.start.length && row.start[last + 1] === row.end[last]) last += 1;
    if (first === last) return [];
    /** @type {Map<string, number>} */
    const sums = new Map();
    for (let i = first; i <= last; i++) {
      const cause = idleLabel(this.model.category(row.pair[i]));
      sums.set(cause, (sums.get(cause) ?? 0) + row.end[i] - row.start[i]);
    }
    const parts = [...sums].sort((a, b) => b[1] - a[1]).map(([cause, ns]) => `  ${cause}: ${exactNs(ns)}`);
    return [say("whole gap: {}", exactNs(row.end[last] - row.start[first])), ...parts];
  }

  /**
   * @param {number} x
   * @param {number} y
   */
  counterLines(x, y) {
    const track = this.placeAt(y)?.track;
    if (!track?.time || !track.value) return [];
    const at = search(track.time, this.view.timeAt(x, this.frame.clientWidth)) - 1;
    return at < 0 ? [] : [track.title, amount(track.value[at], track.unit), say("from {}", exactNs(track.time[at]))];
  }

  /** @param {import("./model.js").Slice | null} slice */
  select(slice) {
    this.selected = slice;
    if (slice) {
      const lines = this.lines(slice);
      const about = this.model.describe(slice);
      if (about.link >= 0) {
        for (const other of this.model.linked(about.link, this.detail ?? null)) {
          if (other.row === slice.row && other.index === slice.index) continue;
          const that = this.model.describe(other);
          lines.push(other.track.kind === "stream" ? say("started {}, at {}", that.name, exactNs(that.start)) : say("launched by {}, at {}", that.name, exactNs(that.start)));
        }
      }
      this.info.textContent = lines.join(" · ");
    } else this.info.textContent = "";
    this.request();
  }

  /** @param {boolean} forward */
  neighbour(forward) {
    if (!this.selected) {
      this.otherRow(true);
      return;
    }
    const index = this.selected.index + (forward ? 1 : -1);
    if (index >= 0 && index < this.selected.row.start.length) this.reach({ ...this.selected, index });
  }

  /** @param {boolean} down */
  otherRow(down) {
    const rows = this.places.flatMap((place) =>
      this.model.exact(place.track, this.detail ?? null).rows.slice(0, MAX_ROWS).map((row, depth) => ({ track: place.track, row, depth })),
    );
    const now = rows.findIndex(({ row }) => row === this.selected?.row);
    const moment = this.selected ? this.selected.row.start[this.selected.index] : this.view.start;
    for (let i = now + (down ? 1 : -1); i >= 0 && i < rows.length; i += down ? 1 : -1) {
      if (!rows[i].row.start.length) continue;
      const index = Math.min(firstEndingAfter(rows[i].row, moment), rows[i].row.start.length - 1);
      this.reach({ ...rows[i], index });
      return;
    }
  }

  /**
   * Select a slice and bring it into view.
   * @param {import("./model.js").Slice} slice
   */
  reach(slice) {
    this.select(slice);
    const start = slice.row.start[slice.index];
    const end = slice.row.end[slice.index];
    if (end < this.view.start || start > this.view.end) this.view.pan((start + end) / 2 - (this.view.start + this.view.end) / 2);
    const place = this.places.find((candidate) => candidate.track.id === slice.track.id);
    if (place) this.reveal(rowBox(place, slice.depth).top, 24);
  }

  fit() {
    if (!this.selected) return;
    const start = this.selected.row.start[this.selected.index];
    const end = this.selected.row.end[this.selected.index];
    this.view.set(start - (end - start) * 0.2, end + (end - start) * 0.2);
    this.request();
  }

  reset() {
    this.view.set(this.view.min, this.view.max);
    this.clear();
  }

  clear() {
    this.highlight = null;
    this.select(null);
  }

  /** @param {string} text */
  find(text) {
    const wanted = text.trim().toLowerCase();
    this.matches = null;
    let count = 0;
    if (wanted) {
      const strings = this.model.strings.map((name) => `${name} ${idleLabel(name)}`.toLowerCase().replaceAll("_", " "));
      const plain = wanted.replaceAll("_", " ");
      this.matches = new Set();
      for (let pair = 0; 2 * pair < this.model.pairs.length; pair++) {
        if (strings[this.model.pairs[2 * pair]].includes(plain) || strings[this.model.pairs[2 * pair + 1]].includes(plain)) {
          this.matches.add(pair);
        }
      }
      for (const track of this.model.tracks) {
        for (const row of track.rows) for (const pair of row.pair) if (this.matches.has(pair)) count += 1;
      }
    }
    this.found.textContent = wanted ? say("{} found; Enter for the next", count.toLocaleString("en-US")) : "";
    this.request();
    return count;
  }

  /** @param {boolean} forward */
  nextMatch(forward) {
    if (!this.matches?.size) return;
    const from = this.selected ? this.selected.row.start[this.selected.index] : this.view.start - 1;
    /** @type {import("./model.js").Slice | null} */
    let best = null;
    for (const track of this.model.tracks) {
      this.model.exact(track, this.detail ?? null).rows.forEach((row, depth) => {
        for (let index = 0; index < row.start.length; index++) {
          const start = row.start[index];
          if (!this.matches?.has(row.pair[index]) || (forward ? start <= from : start >= from)) continue;
          const known = best ? best.row.start[best.index] : null;
          if (known === null || (forward ? start < known : start > known)) best = { track, row, depth, index };
        }
      });
    }
    if (best) this.reach(best);
  }
}

const data = document.getElementById("timeline-data");
const root = document.getElementById("timeline");
const payloads = data?.textContent ? JSON.parse(data.textContent) : [];
if (root && payloads.length) {
  root.classList.add("live");
  const timeline = new Timeline(root, payloads);
  // what tests and curious readers may use
  Object.assign(window, {
    traceTimeline: {
      view: () => ({ start: timeline.view.start, end: timeline.view.end, rank: timeline.model.rank }),
      setView: (/** @type {number} */ start, /** @type {number} */ end) => {
        timeline.view.set(start, end);
        timeline.paint();
      },
      highlight: () => timeline.highlight,
      selection: () => (timeline.selected ? timeline.model.describe(timeline.selected) : null),
      search: (/** @type {string} */ text) => timeline.find(text),
      tracks: () => timeline.places.map(({ track, top, height }) => ({ id: track.id, title: track.title, top, height })),
      frameTimes: () => [...timeline.frames],
      repaint: () => timeline.paint(),
    },
  });
}
offerTables();
Object.assign(window, { __timeline: { ready: true } });
