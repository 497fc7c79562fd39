package offsetlog.segment;

/**
 * The ranges and sums of row groups, one after the other: {@code [[start,end,"sum",records],...]}.
 *
 * <p>Invariant: the text is what our writers write, to the character.
 */
final class Sums {
  private static final int MOST_DIGITS = 18;

  private final String text;
  private int at;

  /** Of the row group that {@link #next} stepped to. */
  long start;

  long end;
  String sum;
  long records;

  Sums(String text) throws Unreadable {
    this.text = text;
    take('[');
  }

  void next() throws Unreadable {
    if (at > 1) {
      take(',');
    }
    take('[');
    start = number();
    take(',');
    end = number();
    take(',');
    take('"');
    int from = at;
    at = Math.max(text.indexOf('"', from), from);
    sum = text.substring(from, at);
    take('"');
    take(',');
    records = number();
    take(']');
  }

  /** That there is no more. */
  void end() throws Unreadable {
    take(']');
    if (at != text.length()) {
      throw broken();
    }
  }

  private long number() throws Unreadable {
    int from = at;
    long out = 0;
    while (at < text.length() && text.charAt(at) >= '0' && text.charAt(at) <= '9') {
      out = out * 10 + text.charAt(at++) - '0';
      if (at - from > MOST_DIGITS) {
        throw broken();
      }
    }
    if (at == from || (at - from > 1 && text.charAt(from) == '0')) {
      throw broken();
    }
    return out;
  }

  private void take(char wanted) throws Unreadable {
    if (at >= text.length() || text.charAt(at) != wanted) {
      throw broken();
    }
    at++;
  }

  private static Unreadable broken() {
    return new Unreadable("it does not say its sums");
  }
}
