// Numbers and times in words. Those in tests/static/words.json are the same as on the server.

const UNITS = [['day', 86400, 'd'], ['hour', 3600, 'h'], ['minute', 60, 'min'], ['second', 1, 's']];

/** Such as "1 image" or "1,234 images". */
export const countOf = (count, noun) => `${count.toLocaleString('en')} ${noun}${count === 1 ? '' : 's'}`;

/** The first `most` of `names`, and the number of further ones. */
export function listed(names, most) {
  const more = names.length - most;
  return names.slice(0, most).join(', ') + (more > 0 ? ` and ${more.toLocaleString('en')} more` : '');
}

const largestUnit = (seconds) => UNITS.find(([, length]) => seconds >= length) ?? UNITS.at(-1);

/** `seconds` in its two largest units, such as "2 min 5 s". */
export function duration(seconds) {
  if (!Number.isFinite(seconds)) return '?';
  if (seconds < 0.5) return 'less than 1 s';
  const [, smallest] = UNITS[UNITS.indexOf(largestUnit(seconds)) + 1] ?? UNITS.at(-1);
  let left = Math.floor(seconds / smallest + 0.5) * smallest;
  const parts = [];
  for (const [, length, symbol] of UNITS) {
    const count = Math.floor(left / length);
    left %= length;
    if (count) parts.push(`${count} ${symbol}`);
  }
  return parts.join(' ');
}

/** `seconds` in a short form, such as "2 min 5 s", "1 h 20 min" or "12 ms". */
export function shortDuration(seconds) {
  if (!Number.isFinite(seconds)) return '?';
  if (seconds < 1) return `${number(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  const [days, hours, minutes] = [Math.floor(whole / 86400), Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60];
  if (days) return `${days} d ${hours} h`;
  if (hours) return `${hours} h ${minutes} min`;
  return minutes ? `${minutes} min ${whole % 60} s` : `${whole} s`;
}

/** A time on an axis, with the parts that are not zero: "0", "30 s", "1 min 30 s", "2 h". */
export function elapsed(seconds) {
  if (seconds < 60) return seconds === 0 ? '0' : `${number(seconds)} s`;
  const whole = Math.round(seconds);
  const parts = [[Math.floor(whole / 86400), 'd'], [Math.floor(whole / 3600) % 24, 'h'], [Math.floor(whole / 60) % 60, 'min'], [whole % 60, 's']];
  const first = parts.findIndex(([count]) => count > 0);
  return parts.slice(first, first + 2).flatMap(([count, unit]) => (count ? [`${count} ${unit}`] : [])).join(' ');
}

/** How long ago the Unix time `at` was, in its largest unit. */
export function ago(at, now = Date.now() / 1000) {
  const seconds = now - at;
  if (seconds < 10) return 'just now';
  const [name, length] = largestUnit(seconds);
  return `${countOf(Math.floor(seconds / length), name)} ago`;
}

/** When a Unix time will be, in its largest unit; "soon" if it has passed. */
export function ahead(at, now = Date.now() / 1000) {
  const seconds = at - now;
  if (seconds <= 0) return 'soon';
  const [name, length] = largestUnit(seconds);
  return `in ${countOf(Math.floor(seconds / length), name)}`;
}

/** A size such as "3.2 MB", in powers of 1000. */
export function bytes(count) {
  if (count < 1000) return countOf(Math.round(count), 'Byte');
  const power = Math.min(4, Math.floor(Math.log10(count) / 3));
  return `${(count / 1000 ** power).toFixed(1)} ${['kB', 'MB', 'GB', 'TB'][power - 1]}`;
}

/**
 * A number with three significant digits, as an integer from 1000, or with an exponent: 0.0123, 12,345, 1.2e-6. Zeros at the
 * end mean that it was rounded: 1.10 for 1.0986.
 */
export function number(value) {
  if (!Number.isFinite(value)) return '–';
  const digits = Math.abs(value) < 1e6 ? Math.max(3, String(Math.trunc(Math.abs(value))).length) : 3;
  const rounded = Number(value.toPrecision(digits)) || 0; // not -0
  const isRounded = rounded !== Number(value.toPrecision(6));
  const size = Math.abs(rounded);
  if (size >= 1e6 || (size > 0 && size < 1e-4)) return rounded.toExponential(isRounded ? 2 : undefined);
  return rounded.toLocaleString('en', { minimumSignificantDigits: isRounded ? 3 : 1, maximumSignificantDigits: 6 });
}

/** An axis label with as many decimals as the distance between labels requires, and few characters. */
export function tick(value, distance) {
  if (Math.abs(value) >= 1e15) return value.toExponential(1);
  if (distance >= 1e5) return value.toLocaleString('en', { notation: 'compact', maximumFractionDigits: 2 });
  let decimals = 0;
  const isWhole = (scaled) => Math.abs(scaled - Math.round(scaled)) <= scaled * 1e-6;
  while (decimals < 9 && !isWhole(distance * 10 ** decimals)) decimals += 1;
  if (decimals > 5) return value === 0 ? '0' : Number(value.toPrecision(3)).toExponential();
  return value.toLocaleString('en', { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
}

export function percent(value, digits = 1) {
  return value === null || value === undefined ? '–' : `${value.toFixed(digits)}%`;
}
