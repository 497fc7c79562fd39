"""Tests of offsetlog/page."""
