/**
 * Tables to take away: as a CSV file, or onto the clipboard. Numbers go out exact, in the unit their heading then names.
 */
import { say } from "./words.js";

const CSV_UNITS = { ns: "ns", bytes: "bytes", share: "fraction" };

/**
 * @param {HTMLTableCellElement} cell
 * @returns {string}
 */
function exactText(cell) {
  const number = cell.querySelector("data");
  const text = number ? number.value : (cell.textContent ?? "").replace(/\s+/g, " ").trim();
  if (number) return text;
  if (text === "·") return "";
  return /^-?[\d,]+$/.test(text) ? text.replaceAll(",", "") : text;
}

/**
 * @param {HTMLTableElement} table
 * @returns {string[][]}
 */
function exactRows(table) {
  const rows = [...table.rows].map((row) => [...row.cells].map(exactText));
  const sample = [...table.rows].slice(1);
  rows[0] = rows[0].map((heading, column) => {
    const number = sample.map((row) => row.cells[column]?.querySelector("data")).find((found) => found);
    const unit = number ? CSV_UNITS[/** @type {keyof typeof CSV_UNITS} */ (number.className)] : "";
    return unit ? `${heading} [${unit}]` : heading;
  });
  return rows;
}

/**
 * @param {string} text
 * @returns {string}
 */
function csvField(text) {
  // a name from a recording must not become a formula in a spreadsheet
  const inert = /^[=+@\t\r]/.test(text) || /^-(?![\d.])/.test(text) ? `'${text}` : text;
  return /[",\n]/.test(inert) ? `"${inert.replaceAll('"', '""')}"` : inert;
}

/** @param {HTMLTableElement} table */
export function tableCsv(table) {
  return exactRows(table).map((row) => row.map(csvField).join(",")).join("\r\n") + "\r\n";
}

/** Put two buttons under every table worth taking away. */
export function offerTables() {
  for (const table of document.querySelectorAll("main table")) {
    if (!(table instanceof HTMLTableElement) || table.rows.length < 3 || table.closest(".card") || table.matches(".fired")) continue;
    const caption = table.caption?.textContent?.trim() ?? "table";
    const bar = document.createElement("p");
    bar.className = "save";
    const copy = document.createElement("button");
    copy.type = "button";
    copy.textContent = say("Copy");
    copy.setAttribute("aria-label", say("Copy table: {}", caption));
    copy.addEventListener("click", async () => {
      const text = exactRows(table).map((row) => row.join("\t")).join("\n");
      try {
        await navigator.clipboard.writeText(text);
        copy.textContent = say("Copied");
      } catch {
        copy.textContent = say("The browser refused");
      }
      setTimeout(() => (copy.textContent = say("Copy")), 1500);
    });
    const save = document.createElement("button");
    save.type = "button";
    save.textContent = "CSV";
    save.setAttribute("aria-label", say("Save table as CSV: {}", caption));
    save.addEventListener("click", () => {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([tableCsv(table)], { type: "text/csv" }));
      link.download = `${caption.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "")}.csv`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    });
    bar.append(copy, save);
    (table.closest(".scroll") ?? table).after(bar);
  }
}
