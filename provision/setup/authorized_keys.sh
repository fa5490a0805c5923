# Gives the user of this machine the granted keys, and takes away those that are gone.
# Lines of others stay as they are. Prints the number of connections that it ended, and `incomplete`
# after it if this machine's log does not show all of them.
set -eu
umask 077
file=$HOME/.ssh/authorized_keys
mkdir -p "$HOME/.ssh"
touch "$file"
awk -v gone="$gone" '
    BEGIN { count = split(gone, keys, " ") }
    {
        keep = !/ \(granted by gpuctl\)$/
        for (i = 1; i <= count; i++) if (index($0, keys[i])) keep = 0
        if (keep) print
    }
' "$file" > "$file.gpuctl"
[ -z "$granted" ] || printf '%s\n' "$granted" >> "$file.gpuctl"
mv -f "$file.gpuctl" "$file"
# sshd checks a key at login alone: connections that are open would stay. sshd's log says which
# process serves which key. The log of this script's own login is the last one that must be there.
ended=0
incomplete=
if [ -n "$fingerprints" ]; then
    incomplete=' incomplete'
    own=" "
    pid=$$
    while [ "$pid" -gt 1 ]; do
        own="$own$pid "
        pid=$(sed -n 's/^PPid:[[:space:]]*//p' "/proc/$pid/status" 2> /dev/null || echo 1)
    done
    login='s/.* sshd[^[]*\[\([0-9]*\)\]: Accepted publickey for .* \(SHA256:[^ ]*\).*/\1 \2/p'
    for _ in $(seq 25); do
        # Only what root's processes have logged: others can pretend to be sshd.
        logins=$(journalctl -b -q --no-pager -o short _UID=0 -t sshd -t sshd-session 2> /dev/null |
            sed -n "$login")
        [ -n "$logins" ] || break
        seen=$(printf '%s\n' "$logins" | awk -v own="$own" 'index(own, " " $1 " ")')
        if [ -n "$seen" ]; then
            incomplete=
            break
        fi
        sleep 0.2
    done
    served=$(printf '%s\n' "$logins" | awk -v gone=" $fingerprints " '
        { last[$1] = $2 }
        END { for (pid in last) if (index(gone, " " last[pid] " ")) print pid }')
    for pid in $served; do
        case $(cat "/proc/$pid/comm" 2> /dev/null || true) in
            sshd*) ;;
            *) continue ;;
        esac
        case $own in
            *" $pid "*) continue ;;
        esac
        # Behind the login of another user than root is a process of root's, which only root ends,
        # and a child of it that belongs to the user: without it the connection ends, too.
        children=$(grep -lx "PPid:[[:space:]]*$pid" /proc/[0-9]*/status 2> /dev/null | cut -d/ -f3)
        for one in $pid $children; do
            if kill "$one" 2> /dev/null; then
                ended=$((ended + 1))
                continue 2
            fi
        done
        [ ! -d "/proc/$pid" ] || incomplete=' incomplete'
    done
fi
echo "$ended$incomplete"
