/**
 * The script's own sentences in the language of the page, which comes with them as data; English is the key.
 */

/** @type {Record<string, string> | null} */
let words = null;

/**
 * @param {string} sentence in English, with `{}` where a value stands
 * @param {...(string | number)} values
 * @returns {string}
 */
export function say(sentence, ...values) {
  words ??= JSON.parse(document.getElementById("words")?.textContent || "{}");
  let next = 0;
  return (words?.[sentence] ?? sentence).replace(/\{(\d*)\}/g, (_, at) => String(values[at === "" ? next++ : Number(at)]));
}
