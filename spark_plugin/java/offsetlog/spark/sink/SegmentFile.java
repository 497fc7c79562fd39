package offsetlog.spark.sink;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.FileSystemException;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.security.SecureRandom;
import java.util.HexFormat;

/**
 * A segment on a local disk: a temporary file that gets its name when its bytes are on the disk.
 *
 * <p>As with Python's store, no symbolic link below the root is followed, whenever it comes: the
 * folder is opened part by part for the temporary file, and again for the name, where it must be the
 * same. It is synced after the name.
 */
final class SegmentFile implements SegmentEncoder.Output, AutoCloseable {
  /** A channel keeps a buffer outside the heap as large as the largest piece that it was given. */
  private static final int PIECE = 256 * 1024;

  private static final SecureRandom RANDOM = new SecureRandom();

  /** Its id, as an entry names it. */
  final String id = newId();

  private final Root root;
  private final Topic topic;
  private final int partition;

  /** Of the folder in which the temporary file is. */
  private final Object key;

  private final Path path;
  private final String name;
  private final String temporary;
  private final FileChannel channel;
  private boolean isNamed;

  /** Its name says the tip of the topic that was planned with. */
  SegmentFile(Root root, Topic topic, int partition) throws IOException {
    this.root = root;
    this.topic = topic;
    this.partition = partition;
    name = String.format("%020d-%s.parquet", topic.tip(), id);
    long process = ProcessHandle.current().pid();
    temporary = ".tmp-" + Long.toHexString(process) + "-" + newId();
    try (Folder folder = root.partition(topic, partition, true)) {
      path = folder.path().resolve(name);
      key = folder.key();
      channel = folder.create(temporary);
    }
  }

  /** The folder in which the temporary file is; an error if another one is in its place. */
  private Folder folder() throws IOException {
    Folder folder = root.partition(topic, partition, false);
    if (!folder.key().equals(key)) {
      folder.close();
      throw new NoSuchFileException(path.toString(), null, "No such file or directory");
    }
    return folder;
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
      try (Folder folder = folder()) {
        folder.rename(temporary, name);
        isNamed = true;
        folder.sync();
      }
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
      try (Folder folder = folder()) {
        folder.delete(temporary);
      } catch (FileSystemException gone) {
        // Its folder is not there, and with it what has a name that upkeep sweeps.
      }
    }
  }
}
