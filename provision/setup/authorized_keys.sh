# Gives the user of this machine the granted keys, and takes away those that are gone.
# Lines of others stay as they are. Prints the number of connections that it ended.
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
# process serves which key; only root may read it, and the user of a bastion is not root.
ended=0
if [ -n "$fingerprints" ] && command -v journalctl > /dev/null; then
    own=" "
    pid=$$
    while [ "$pid" -gt 1 ]; do
        own="$own$pid "
        pid=$(sed -n 's/^PPid:[[:space:]]*//p' "/proc/$pid/status")
    done
    served=$(journalctl -b -q --no-pager -o short -t sshd -t sshd-session 2> /dev/null |
        sed -n 's/.* sshd[^[]*\[\([0-9]*\)\]: Accepted publickey for .* \(SHA256:[^ ]*\).*/\1 \2/p' |
        awk -v gone=" $fingerprints " '
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
        kill "$pid" && ended=$((ended + 1))
    done
fi
echo "$ended"
