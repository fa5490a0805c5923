"""The lab's machines: booted, limited, examined after a crash."""
