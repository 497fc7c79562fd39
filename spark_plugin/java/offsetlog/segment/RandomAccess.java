package offsetlog.segment;

import java.io.Closeable;
import java.io.IOException;

/** A file that is read at any place, and does not change while it is. */
public interface RandomAccess extends Closeable {
  long size() throws IOException;

  /** Bytes {@code [start, end)} will be read, in ascending order: what takes long may begin now. */
  default void expect(long start, long end) {}

  /** All of bytes {@code [position, position + length)}, or an error if it has not so many. */
  void read(long position, byte[] target, int length) throws IOException;
}
