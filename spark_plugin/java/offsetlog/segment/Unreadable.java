package offsetlog.segment;

/**
 * What this reader does not read: a file that is not as it was planned, or is written in a way that
 * it does not know. Python reads on from there, and words the error if it is one.
 */
public final class Unreadable extends Exception {
  private static final long serialVersionUID = 1;

  public Unreadable(String why) {
    super(why);
  }
}
