"""Disks behind a server: sftp and smb."""
