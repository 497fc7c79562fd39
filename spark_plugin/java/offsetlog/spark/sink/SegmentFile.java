package offsetlog.spark.sink;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.security.SecureRandom;
import java.util.HexFormat;

/**
 * A segment on a local disk: a temporary file that gets its name when its bytes are on the disk.
 *
 * <p>As with Python's store, no symbolic link below the root is followed, and the folder is synced
 * after the name.
 */
final class SegmentFile implements SegmentEncoder.Output, AutoCloseable {
  /** A channel keeps a buffer outside the heap as large as the largest piece that it was given. */
  private static final int PIECE = 256 * 1024;

  private static final SecureRandom RANDOM = new SecureRandom();

  /** Its id, as an entry names it. */
  final String id = newId();

  private final Folder folder;
  private final Path path;
  private final Path temporary;
  private final FileChannel channel;
  private boolean isNamed;

  /** {@code born}: the tip of the topic that was planned with. */
  SegmentFile(Folder folder, long born) throws IOException {
    this.folder = folder;
    path = folder.path().resolve(String.format("%020d-%s.parquet", born, id));
    long process = ProcessHandle.current().pid();
    temporary = folder.path().resolve(".tmp-" + Long.toHexString(process) + "-" + newId());
    channel =
        FileChannel.open(
            temporary,
            StandardOpenOption.WRITE,
            StandardOpenOption.CREATE_NEW,
            LinkOption.NOFOLLOW_LINKS);
  }

  /** 128 random bits as 32 digits. */
  private static String newId() {
    byte[] id = new byte[16];
    RANDOM.nextBytes(id);
    return HexFormat.of().formatHex(id);
  }

  @Override
  public void write(byte[] data, int from, int length) throws IOException {
    for (int at = from; at < from + length; at += PIECE) {
      ByteBuffer piece = ByteBuffer.wrap(data, at, Math.min(PIECE, from + length - at));
      try {
        while (piece.hasRemaining()) {
          channel.write(piece);
        }
      } catch (IOException error) {
        throw named(error);
      }
    }
  }

  /** Makes the bytes durable, and then the name. */
  void name() throws IOException {
    try {
      channel.force(false);
      channel.close();
      Files.move(temporary, path, StandardCopyOption.ATOMIC_MOVE);
      isNamed = true;
      folder.sync();
    } catch (IOException error) {
      throw named(error);
    }
  }

  /** The same, with the file's name. */
  private IOException named(IOException error) {
    if (error instanceof FileSystemException) {
      return error;
    }
    FileSystemException named = new FileSystemException(path.toString(), null, error.getMessage());
    named.initCause(error);
    return named;
  }

  /** Removes the file if it has no name yet. */
  @Override
  public void close() throws IOException {
    channel.close();
    if (!isNamed) {
      Files.deleteIfExists(temporary);
    }
  }
}
