package offsetlog.segment;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/**
 * A file of this machine. A link at its place is not followed, and what is no file (a pipe, which
 * would be waited for, a socket, a device, a folder) is not opened.
 *
 * <p>It is read in pieces: a channel that fills an array takes a buffer outside the heap of the same
 * size, and keeps it for as long as the thread lives. So each thread has one small buffer of ours,
 * which no file holds on to: who reads on may be another thread.
 */
public final class LocalFile implements RandomAccess {
  private static final int PIECE = 1 << 18;
  private static final ThreadLocal<ByteBuffer> PIECES =
      ThreadLocal.withInitial(() -> ByteBuffer.allocateDirect(PIECE));

  private final FileChannel channel;

  public LocalFile(Path path) throws IOException {
    if (!Files.isRegularFile(path, LinkOption.NOFOLLOW_LINKS)) {
      throw new NoSuchFileException(path.toString(), null, "there is no file");
    }
    channel = FileChannel.open(path, StandardOpenOption.READ, LinkOption.NOFOLLOW_LINKS);
  }

  @Override
  public long size() throws IOException {
    return channel.size();
  }

  @Override
  public void read(long position, byte[] target, int length) throws IOException {
    ByteBuffer piece = PIECES.get();
    int done = 0;
    while (done < length) {
      piece.clear().limit(Math.min(PIECE, length - done));
      int got = channel.read(piece, position + done);
      if (got <= 0) {
        throw new EOFException();
      }
      piece.flip();
      piece.get(target, done, got);
      done += got;
    }
  }

  @Override
  public void close() throws IOException {
    channel.close();
  }
}
