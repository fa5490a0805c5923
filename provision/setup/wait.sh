# Waits until cloud-init has ended, and prints each step of the set-up as it begins; at the end all
# steps, cloud-init's status, and the files with its result. The variables come from node_setup.py.
#
# `cloud-init status --wait` is a Python process that asks systemd several times, four times a
# second. So the shell waits for cloud-init's files, and asks that program only if they leave
# something open.
mkdir -p "${steps%/*}"
tail -n +1 -F --pid=$$ "$steps" 2> /dev/null &
follower=$!

# Whether cloud-init works as far as its files show. It asks cloud-init itself every ten seconds:
# some versions know from systemd that a stage was killed.
is_working() {
  [ -e "$state/status.json" ] && [ ! -e "$state/result.json" ] || return 1
  read -rd '' stages < "$state/status.json"
  [[ $stages != *'"errors": ['[!]]* ]] || return 1
  ((++turns % 50)) || [[ $(cloud-init status 2> /dev/null) == *running* ]]
}

# Whether the files show that cloud-init has succeeded, in the way of all versions: it has written
# its result, which has no errors, and all its stages have begun and ended. `modules-init` is in the
# file of versions before 23.4, and never runs.
has_succeeded() {
  result='' stages=''
  read -rd '' result < "$state/result.json"
  read -rd '' stages < "$state/status.json"
  [[ $stages =~ '"modules-init": {'[^}]*'}' ]] && stages=${stages/"${BASH_REMATCH[0]}"/}
  [[ $result == *'"errors": []'* && $stages == *'"modules-final": {'* &&
    $stages != *'"errors": ['[!]]* && $stages != *'"start": null'* &&
    $stages != *'"finished": null'* ]]
} 2> /dev/null

# `read` waits for a pipe in which nothing comes: `sleep` would be a process each time.
exec {pipe}<> <(:)
turns=0
while is_working && [ "$SECONDS" -lt "$limit" ]; do
  read -rt 0.2 -u "$pipe"
  [ $? -gt 128 ] || sleep 0.2
done
left=$((limit > SECONDS ? limit - SECONDS : 1))
status='status: done'
has_succeeded || status=$(timeout "$left" cloud-init status --wait 2> /dev/null)
kill "$follower" 2> /dev/null
echo
echo "$steps_follow"
cat "$steps"
echo "$status_follows"
printf '%s\n' "$status"
echo "$result_follows"
cat "$state/result.json"
echo
echo "$stages_follow"
cat "$state/status.json"
