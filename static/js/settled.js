/** Debounces `act`: calls it once when calls have stopped for `milliseconds`. */
export function settled(act, milliseconds) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(act, milliseconds);
  };
}
