package offsetlog.spark.sink;

import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.file.AccessDeniedException;
import java.nio.file.DirectoryStream;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.SecureDirectoryStream;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.BasicFileAttributeView;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.Set;

/**
 * An open folder of a root on a local disk.
 *
 * <p>Invariant: names are resolved from the folder that is open, and no symbolic link is followed;
 * where its path leads by now does not matter. Only a folder is made by its path, for which Java has
 * nothing better: one that is made elsewhere stays empty, since it is not found here.
 */
final class Folder implements AutoCloseable {
  /** Why nothing is written. */
  static final String IS_LINK = "it is a symbolic link";

  private static final Path ITSELF = Path.of(".");

  private final Path path;
  private final SecureDirectoryStream<Path> stream;

  private Folder(Path path, SecureDirectoryStream<Path> stream) {
    this.path = path;
    this.stream = stream;
  }

  /** Null where the system can't resolve names from open folders. */
  static Folder open(Path path) throws IOException {
    DirectoryStream<Path> stream = Files.newDirectoryStream(path);
    if (stream instanceof SecureDirectoryStream<Path> secure) {
      return new Folder(path, secure);
    }
    stream.close();
    return null;
  }

  Path path() {
    return path;
  }

  /** The folder of that name in this one. */
  Folder below(String name) throws IOException {
    Path child = path.resolve(name);
    Path last = Path.of(name);
    try {
      BasicFileAttributes there =
          stream
              .getFileAttributeView(
                  last, BasicFileAttributeView.class, LinkOption.NOFOLLOW_LINKS)
              .readAttributes();
      if (there.isSymbolicLink()) {
        throw new FileSystemException(child.toString(), null, IS_LINK);
      }
      if (!there.isDirectory()) {
        throw new FileSystemException(child.toString(), null, "Not a directory");
      }
      return new Folder(child, stream.newDirectoryStream(last, LinkOption.NOFOLLOW_LINKS));
    } catch (FileSystemException error) {
      throw located(error, name);
    }
  }

  /** The same, made if it is not there. Its name is durable once this one was synced. */
  Folder made(String name) throws IOException {
    try {
      return below(name);
    } catch (NoSuchFileException absent) {
      try {
        Files.createDirectory(path.resolve(name));
      } catch (FileAlreadyExistsException now) {
        // Somebody else made it.
      } catch (FileSystemException error) {
        throw located(error, name);
      }
      return below(name);
    }
  }

  /** What tells it from all other folders. */
  Object key() throws IOException {
    return stream.getFileAttributeView(BasicFileAttributeView.class).readAttributes().fileKey();
  }

  /** A new file. */
  FileChannel create(String name) throws IOException {
    try {
      return (FileChannel)
          stream.newByteChannel(
              Path.of(name),
              Set.of(
                  StandardOpenOption.WRITE,
                  StandardOpenOption.CREATE_NEW,
                  LinkOption.NOFOLLOW_LINKS));
    } catch (FileSystemException error) {
      throw located(error, name);
    }
  }

  void rename(String from, String to) throws IOException {
    try {
      stream.move(Path.of(from), stream, Path.of(to));
    } catch (FileSystemException error) {
      throw located(error, to);
    }
  }

  void delete(String name) throws IOException {
    stream.deleteFile(Path.of(name));
  }

  /** Makes the names in it durable. */
  void sync() throws IOException {
    try (FileChannel folder =
        (FileChannel) stream.newByteChannel(ITSELF, Set.of(StandardOpenOption.READ))) {
      folder.force(true);
    }
  }

  /** The same error with a whole path, and with the system's words. */
  private FileSystemException located(FileSystemException error, String name) {
    String file = path.resolve(name).toString();
    FileSystemException out;
    if (error instanceof NoSuchFileException) {
      out = new NoSuchFileException(file, null, "No such file or directory");
    } else if (error instanceof AccessDeniedException) {
      out = new AccessDeniedException(file, null, "Permission denied");
    } else {
      out = new FileSystemException(file, null, error.getReason());
    }
    out.initCause(error);
    return out;
  }

  @Override
  public void close() throws IOException {
    stream.close();
  }
}
