import java.io.EOFException;
import java.io.File;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.security.AccessControlException;
import org.apache.hadoop.util.Progressable;

/**
 * A store of Hadoop's whose buckets are folders, and which does nothing but read ranges of files.
 *
 * <p>Each range is a line of the file {@code asked}: path, start, length. Anything else that is asked
 * is a line, too, and fails. The file {@code order} says what becomes of all ranges: {@code refuse},
 * or {@code wait} and milliseconds.
 */
public final class FolderStore extends FileSystem {
  private URI uri;
  private Path folder;

  @Override
  public void initialize(URI name, Configuration conf) throws IOException {
    super.initialize(name, conf);
    uri = URI.create(name.getScheme() + "://" + name.getAuthority());
    folder = Path.of(conf.get("folder.store"));
  }

  @Override
  public URI getUri() {
    return uri;
  }

  @Override
  public FSDataInputStream open(org.apache.hadoop.fs.Path path, int bufferSize) throws IOException {
    File file = folder.resolve(uri.getAuthority() + path.toUri().getPath()).toFile();
    return new FSDataInputStream(new Ranges(file, path.toUri().getPath()));
  }

  private synchronized void note(String what) throws IOException {
    Files.writeString(
        folder.resolve("asked"), what + "\n", StandardOpenOption.CREATE, StandardOpenOption.APPEND);
  }

  private void obey() throws IOException {
    Path order = folder.resolve("order");
    String[] words = Files.exists(order) ? Files.readString(order).split(" ") : new String[] {""};
    if (words[0].equals("refuse")) {
      throw new AccessControlException("no rights");
    }
    if (words[0].equals("wait")) {
      try {
        Thread.sleep(Long.parseLong(words[1].trim()));
      } catch (InterruptedException ended) {
        throw new IOException(ended);
      }
    }
  }

  private final class Ranges extends FSInputStream {
    private final File file;
    private final String name;

    Ranges(File file, String name) {
      this.file = file;
      this.name = name;
    }

    @Override
    public int read(long position, byte[] target, int offset, int length) throws IOException {
      note(name + " " + position + " " + length);
      obey();
      if (!file.exists()) {
        throw new FileNotFoundException(name);
      }
      try (RandomAccessFile in = new RandomAccessFile(file, "r")) {
        in.seek(position);
        int got = in.read(target, offset, length);
        if (got < 0) {
          throw new EOFException();
        }
        return got;
      }
    }

    @Override
    public int read() throws IOException {
      throw no("read in sequence");
    }

    @Override
    public void seek(long position) throws IOException {
      throw no("seek");
    }

    @Override
    public long getPos() {
      return 0;
    }

    @Override
    public boolean seekToNewSource(long target) {
      return false;
    }
  }

  private IOException no(String what) throws IOException {
    note(what);
    return new IOException("nobody should ask for that: " + what);
  }

  @Override
  public FileStatus getFileStatus(org.apache.hadoop.fs.Path path) throws IOException {
    throw no("status");
  }

  @Override
  public FileStatus[] listStatus(org.apache.hadoop.fs.Path path) throws IOException {
    throw no("list");
  }

  @Override
  public FSDataOutputStream create(
      org.apache.hadoop.fs.Path path, FsPermission permission, boolean overwrite, int bufferSize,
      short replication, long blockSize, Progressable progress) throws IOException {
    throw no("create");
  }

  @Override
  public FSDataOutputStream append(
      org.apache.hadoop.fs.Path path, int bufferSize, Progressable progress) throws IOException {
    throw no("append");
  }

  @Override
  public boolean rename(org.apache.hadoop.fs.Path from, org.apache.hadoop.fs.Path to)
      throws IOException {
    throw no("rename");
  }

  @Override
  public boolean delete(org.apache.hadoop.fs.Path path, boolean recursive) throws IOException {
    throw no("delete");
  }

  @Override
  public boolean mkdirs(org.apache.hadoop.fs.Path path, FsPermission permission)
      throws IOException {
    throw no("mkdirs");
  }

  @Override
  public void setWorkingDirectory(org.apache.hadoop.fs.Path path) {}

  @Override
  public org.apache.hadoop.fs.Path getWorkingDirectory() {
    return new org.apache.hadoop.fs.Path(uri + "/");
  }
}
