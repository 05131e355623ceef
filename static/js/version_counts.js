// The number of images in each split of a version, before it is created.

/**
 * Returns {train, val, test} after `edits` of the images in `counts`, new splits of `val` and `test` percent of all images
 * unless both are null, and a random choice of `keep` percent of each split. The server rounds per class.
 */
export function countsAfter(counts, { exclude = [], move = [] }, { keep, val, test }) {
  const after = { train: 0, val: 0, test: 0, ...counts };
  for (const [split] of exclude) after[split] -= 1;
  for (const [from, , to] of move) {
    after[from] -= 1;
    after[to] += 1;
  }
  if (val !== null || test !== null) {
    const total = after.train + after.val + after.test;
    after.val = Math.round((total * (val ?? 0)) / 100);
    after.test = Math.round((total * (test ?? 0)) / 100);
    after.train = total - after.val - after.test;
  }
  for (const split of Object.keys(after)) after[split] = Math.round((after[split] * keep) / 100);
  return after;
}
