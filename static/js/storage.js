// JSON values in the browser's 'localStorage' or 'sessionStorage'.
// If the storage is full or blocked, values are silently not stored.

export function stored(place, key) {
  try {
    return JSON.parse(window[place].getItem(key));
  } catch {
    return null;
  }
}

export function store(place, key, value) {
  try {
    window[place].setItem(key, JSON.stringify(value));
  } catch {
    // See above.
  }
}

/** Removes all keys that `matches(key)` accepts. */
export function forget(place, matches) {
  try {
    for (const key of Object.keys(window[place]).filter(matches)) window[place].removeItem(key);
  } catch {
    // See above.
  }
}
