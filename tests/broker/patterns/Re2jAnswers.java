import com.google.re2j.Pattern;
import com.google.re2j.PatternSyntaxException;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;

/** Reads lines of an expression and names, separated by tabs. Prints a digit for each name, or "invalid". */
public class Re2jAnswers {
    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        PrintStream output = new PrintStream(System.out, false, "UTF-8");
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] parts = line.split("\t", -1);
            StringBuilder answer = new StringBuilder();
            try {
                Pattern pattern = Pattern.compile(parts[0]);
                for (int at = 1; at < parts.length; at++) {
                    answer.append(pattern.matcher(parts[at]).matches() ? '1' : '0');
                }
            } catch (PatternSyntaxException error) {
                answer.append("invalid");
            }
            output.println(answer);
        }
        output.flush();
    }
}
