# cloud-init prints them at the end of the boot; the client pins them from here on.
{
  echo '-----BEGIN SSH HOST KEY KEYS-----'
  cat /etc/ssh/ssh_host_ed25519_key.pub
  echo '-----END SSH HOST KEY KEYS-----'
} > /dev/console || true
