import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.coordinator.group.streams.assignor.AssignmentMemberSpec;
import org.apache.kafka.coordinator.group.streams.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.streams.assignor.GroupSpecImpl;
import org.apache.kafka.coordinator.group.streams.assignor.StickyTaskAssignor;
import org.apache.kafka.coordinator.group.streams.assignor.TopologyDescriber;

/**
 * Kafka's assignor of streams groups: each line of the input is an assignment to make, each line of the output
 * what it is. A line has fields with ';' between them: the number of standby replicas; the subtopologies as
 * ID:TASKS:STATEFUL; then for each member its id, process, active and standby tasks as ID_INDEX.
 */
public class StickyTasks {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(assigned(line.split(";", -1)));
        }
    }

    private static String assigned(String[] fields) {
        TreeMap<String, int[]> subtopologies = new TreeMap<>();
        for (String each : fields[1].split(" ")) {
            String[] parts = each.split(":");
            subtopologies.put(parts[0], new int[] {Integer.parseInt(parts[1]), Integer.parseInt(parts[2])});
        }
        Map<String, AssignmentMemberSpec> members = new HashMap<>();
        for (int at = 2; at < fields.length; at += 4) {
            members.put(fields[at], new AssignmentMemberSpec(
                Optional.empty(), Optional.empty(), tasks(fields[at + 2]), tasks(fields[at + 3]), Map.of(),
                fields[at + 1], Map.of(), Map.of(), Map.of()));
        }
        TopologyDescriber topology = new TopologyDescriber() {
            @Override
            public List<String> subtopologies() {
                return new ArrayList<>(subtopologies.keySet());
            }

            @Override
            public int maxNumInputPartitions(String id) throws NoSuchElementException {
                return subtopologies.get(id)[0];
            }

            @Override
            public boolean isStateful(String id) throws NoSuchElementException {
                return subtopologies.get(id)[1] != 0;
            }
        };
        GroupAssignment made = new StickyTaskAssignor().assign(
            new GroupSpecImpl(members, Map.of("num.standby.replicas", fields[0])), topology);
        StringBuilder line = new StringBuilder();
        for (String member : new TreeSet<>(members.keySet())) {
            line.append(line.isEmpty() ? "" : ";").append(member)
                .append(";").append(text(made.members().get(member).activeTasks()))
                .append(";").append(text(made.members().get(member).standbyTasks()));
        }
        return line.toString();
    }

    private static Map<String, Set<Integer>> tasks(String text) {
        Map<String, Set<Integer>> tasks = new HashMap<>();
        for (String each : text.isEmpty() ? new String[0] : text.split(" ")) {
            String[] parts = each.split("_");
            tasks.computeIfAbsent(parts[0], __ -> new TreeSet<>()).add(Integer.parseInt(parts[1]));
        }
        return tasks;
    }

    private static String text(Map<String, Set<Integer>> tasks) {
        List<String> found = new ArrayList<>();
        for (Map.Entry<String, Set<Integer>> each : new TreeMap<>(tasks).entrySet()) {
            for (int index : new TreeSet<>(each.getValue())) {
                found.add(each.getKey() + "_" + index);
            }
        }
        return String.join(" ", found);
    }
}
