# A node gets its Elastic IP some time after it boots, and reaches nothing outside before that.
python3 - << 'END'
import sys
import time
import urllib.request

# Without a proxy: the service answers only the instance itself.
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def ask(path, method, **headers):
    url = "http://169.254.169.254/latest/" + path
    named = {"X-aws-ec2-metadata-" + name.replace("_", "-"): value for name, value in headers.items()}
    return direct.open(urllib.request.Request(url, None, named, method=method), timeout=5).read().decode()


for _ in range(60):
    try:
        token = ask("api/token", "PUT", token_ttl_seconds="60")
        print(ask("meta-data/public-ipv4", "GET", token=token))
        sys.exit()
    except OSError:
        time.sleep(5)
sys.exit("no public address after five minutes: the Elastic IP is not associated with this node")
END
