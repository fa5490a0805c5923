# Once at most: the step counts as finished before the machine goes down.
if [ -e $gpuctl_state/reboot ] || [ -e /run/reboot-required ]; then
  rm -f $gpuctl_state/reboot
  echo "$gpuctl_now" >> $gpuctl_state/finished
  echo rebooting >> $gpuctl_state/steps
  trap - EXIT
  systemctl reboot
  sleep 600
fi
