/**
 * The embedded timeline as typed arrays, one row per depth, ready for binary search.
 */
import { say } from "./words.js";

/**
 * @typedef {object} Row slices of one depth: sorted by start, never overlapping
 * @property {Float64Array} start ns
 * @property {Float64Array} end ns
 * @property {Int32Array} pair index into `Model.pairs`
 * @property {Int32Array} merged number of slices each one stands for
 * @property {Int32Array} link shared by a launch and its activities; -1 none
 */
/**
 * @typedef {object} Track
 * @property {string} id
 * @property {string} kind
 * @property {string} title
 * @property {string} unit
 * @property {Row[]} rows empty for a counter
 * @property {Float64Array | null} time times of a counter, ns
 * @property {Float64Array | null} value its values
 * @property {number} low smallest value drawn, at most 0
 * @property {number} high largest value
 */
/** @typedef {{track: Track, row: Row, depth: number, index: number}} Slice */
/** @typedef {{start: number, end: number, why: string, tracks: Map<string, Track>}} Detail */

/** One rank's timeline. */
export class Model {
  /** @param {any} payload as the renderer encodes it */
  constructor(payload) {
    this.rank = payload.rank;
    this.start = payload.start;
    this.end = payload.end;
    this.binned = payload.binned;
    this.mergedSlices = payload.merged;
    /** @type {string[]} */
    this.strings = payload.strings;
    /** @type {number[]} name and category of each pair, alternating */
    this.pairs = payload.pairs;
    /** @type {Track[]} */
    this.tracks = payload.tracks.map(decodeTrack);
    /** @type {Detail[]} */
    this.details = payload.details.map((/** @type {any} */ detail) => ({
      start: detail.start,
      end: detail.end,
      why: detail.why,
      tracks: new Map(detail.tracks.map((/** @type {any} */ track) => [track.id, decodeTrack(track)])),
    }));
    /** @type {Map<Detail | null, Map<number, Slice[]>>} */
    this.links = new Map();
  }

  /** @param {number} pair */
  name(pair) {
    return this.strings[this.pairs[2 * pair]];
  }

  /** @param {number} pair */
  category(pair) {
    return this.strings[this.pairs[2 * pair + 1]];
  }

  /**
   * The exact window that holds a whole view, if there is one.
   * @param {number} start
   * @param {number} end
   */
  detailFor(start, end) {
    return this.details.find((detail) => detail.start <= start && end <= detail.end) ?? null;
  }

  /**
   * A track as it should be drawn.
   * @param {Track} track
   * @param {Detail | null} detail
   * @returns {Track}
   */
  exact(track, detail) {
    if (!detail || track.kind === "counter") return track;
    return detail.tracks.get(track.id) ?? { ...track, rows: [] };
  }

  /**
   * Every slice that carries a link.
   * @param {number} link
   * @param {Detail | null} detail
   * @returns {Slice[]}
   */
  linked(link, detail) {
    let index = this.links.get(detail);
    if (!index) {
      index = new Map();
      for (const original of this.tracks) {
        const track = this.exact(original, detail);
        track.rows.forEach((row, depth) => {
          for (let i = 0; i < row.link.length; i++) {
            if (row.link[i] < 0) continue;
            const slices = index?.get(row.link[i]);
            const slice = { track: original, row, depth, index: i };
            if (slices) slices.push(slice);
            else index?.set(row.link[i], [slice]);
          }
        });
      }
      this.links.set(detail, index);
    }
    return index.get(link) ?? [];
  }

  /** @param {Slice} slice */
  describe(slice) {
    const { row, index, track } = slice;
    const category = this.category(row.pair[index]);
    return {
      name: track.kind === "idle" ? idleLabel(category) : this.name(row.pair[index]),
      category: track.kind === "idle" ? say("GPU idle, phase {}", say(this.name(row.pair[index]))) : say(category),
      start: row.start[index],
      duration: row.end[index] - row.start[index],
      merged: row.merged[index],
      link: row.link[index],
    };
  }
}

/** @param {string} cause */
export function idleLabel(cause) {
  return say(cause.replaceAll("_", " "));
}

/**
 * First slice that ends after a time.
 * @param {Row} row
 * @param {number} time
 */
export function firstEndingAfter(row, time) {
  let low = 0;
  let high = row.end.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (row.end[middle] > time) high = middle;
    else low = middle + 1;
  }
  return low;
}

/**
 * @param {any} data
 * @returns {Track}
 */
function decodeTrack(data) {
  const track = {
    id: data.id,
    kind: data.kind,
    title: data.title,
    unit: data.unit ?? "",
    rows: /** @type {Row[]} */ ([]),
    time: null,
    value: null,
    low: 0,
    high: 0,
  };
  if (data.t) {
    const time = undelta(data.t);
    const value = Float64Array.from(data.v);
    return {
      ...track,
      time,
      value,
      low: value.reduce((least, v) => Math.min(least, v), 0),
      high: value.reduce((most, v) => Math.max(most, v), 0),
    };
  }
  const start = undelta(data.s);
  const count = start.length;
  /** @type {number[] | undefined} */
  const depths = data.p;
  const sizes = [];
  for (let i = 0; i < count; i++) {
    const depth = depths ? depths[i] : 0;
    sizes[depth] = (sizes[depth] ?? 0) + 1;
  }
  for (let depth = 0; depth < sizes.length; depth++) {
    const size = sizes[depth] ?? 0;
    track.rows.push({
      start: new Float64Array(size),
      end: new Float64Array(size),
      pair: new Int32Array(size),
      merged: new Int32Array(size).fill(1),
      link: new Int32Array(size).fill(-1),
    });
  }
  const merged = new Map(/** @type {[number, number][]} */ (data.m ?? []));
  const filled = new Int32Array(sizes.length);
  let link = 0;
  for (let i = 0; i < count; i++) {
    const depth = depths ? depths[i] : 0;
    const row = track.rows[depth];
    const at = filled[depth]++;
    row.start[at] = start[i];
    row.end[at] = start[i] + data.d[i];
    row.pair[at] = data.n[i];
    row.merged[at] = merged.get(i) ?? 1;
    // 0 stands for no link, so differences from 0 on are written one higher
    if (data.l && data.l[i]) {
      link += data.l[i] > 0 ? data.l[i] - 1 : data.l[i];
      row.link[at] = link;
    }
  }
  return track;
}

/** @param {number[]} differences */
function undelta(differences) {
  const values = new Float64Array(differences.length);
  let sum = 0;
  for (let i = 0; i < values.length; i++) {
    sum += differences[i];
    values[i] = sum;
  }
  return values;
}
