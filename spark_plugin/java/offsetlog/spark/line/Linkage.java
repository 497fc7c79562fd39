package offsetlog.spark.line;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.lang.invoke.MethodType;
import java.lang.reflect.Executable;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.stream.Stream;

/**
 * Whether the Spark that runs has all that these classes name of it and of its Arrow. Much of that is not public, so
 * another release of a line, or a vendor's, need not have it.
 *
 * <p>Invariant: what is missing is known before anything here uses it.
 */
public final class Linkage {
  /** What {@code build.py} found in the compiled classes. */
  private static final String NAMED = "/offsetlog/spark.names";

  private static final ClassLoader LOADER = Linkage.class.getClassLoader();
  private static final String MISSING = missing();

  private Linkage() {}

  /** The first that this Spark has not, in words; null: it has all. */
  public static String missingOfSpark() {
    return MISSING;
  }

  private static String missing() {
    try (BufferedReader names =
        new BufferedReader(
            new InputStreamReader(
                Linkage.class.getResourceAsStream(NAMED), StandardCharsets.UTF_8))) {
      return names.lines().filter(line -> !isThere(line.split(" "))).findFirst().orElse(null);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  /** A class; or its member, with a name and a descriptor. */
  static boolean isThere(String[] name) {
    try {
      Class<?> owner = Class.forName(name[0].replace('/', '.'), false, LOADER);
      if (name.length == 1) {
        return true;
      }
      if (!name[2].startsWith("(")) {
        Class<?> type = MethodType.fromMethodDescriptorString("()" + name[2], LOADER).returnType();
        return hasField(owner, name[1], type);
      }
      MethodType type = MethodType.fromMethodDescriptorString(name[2], LOADER);
      return name[1].equals("<init>")
          ? Stream.of(owner.getDeclaredConstructors()).anyMatch(each -> takes(each, type))
          : hasMethod(owner, name[1], type);
    } catch (ClassNotFoundException | TypeNotPresentException | LinkageError error) {
      return false;
    }
  }

  private static boolean takes(Executable it, MethodType type) {
    return Arrays.equals(it.getParameterTypes(), type.parameterArray());
  }

  private static boolean hasField(Class<?> owner, String name, Class<?> type) {
    for (Class<?> each = owner; each != null; each = each.getSuperclass()) {
      for (Field field : each.getDeclaredFields()) {
        if (field.getName().equals(name) && field.getType() == type) {
          return true;
        }
      }
    }
    return false;
  }

  private static boolean hasMethod(Class<?> owner, String name, MethodType type) {
    for (Method each : owner.getDeclaredMethods()) {
      if (each.getName().equals(name)
          && each.getReturnType() == type.returnType()
          && takes(each, type)) {
        return true;
      }
    }
    Stream<Class<?>> above =
        Stream.concat(Stream.ofNullable(owner.getSuperclass()), Stream.of(owner.getInterfaces()));
    return above.anyMatch(each -> hasMethod(each, name, type));
  }
}
